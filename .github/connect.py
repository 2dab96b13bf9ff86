"""Connects a job to the state's cloud and to the cluster. Its caller gives all values as environment variables.

With a role of AWS or a provider of Google Cloud, the job proves its identity with GitHub's OIDC token, and no
long-lived key exists. The later steps of the job get the credentials as environment variables.
"""

import json
import os
import sys
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import quote, urlencode

_PAGE = "docs/howto/use-github-actions.md"
_SECONDS = 30
_STS_AUDIENCE = "sts.amazonaws.com"


class ConnectError(Exception):
    """Raised if the job cannot connect. The message names the variable or secret to change."""


def connect(given: Mapping[str, str], folder: Path) -> dict[str, str]:
    """Returns the environment variables for the later steps. If nothing is configured, the result is empty.

    Writes the kubeconfig and Google's credential configuration into `folder`. Raises ConnectError.
    """
    needed = {"PULUMI_BACKEND_URL": "variable", **({"KUBECONFIG": "secret"} if given.get("NEEDS_CLUSTER") else {})}
    lacking = [name for name in needed if not given.get(name)]
    if len(lacking) == len(needed):
        return {}
    if lacking:
        listed = ", ".join(f"the {needed[name]} {name}" for name in lacking)
        raise ConnectError(f"{listed} of this job's environment is not set; set it as in {_PAGE}")
    found = {"PULUMI_BACKEND_URL": given["PULUMI_BACKEND_URL"]}
    found |= {name: given[name] for name in ("AWS_REGION", "PULUMI_CONFIG_PASSPHRASE") if given.get(name)}
    if given.get("NEEDS_CLUSTER"):
        found["KUBECONFIG"] = _write(folder / "kubeconfig", given["KUBECONFIG"])
    if given.get("AWS_ROLE_ARN"):
        found |= _aws_session(given)
    elif given.get("AWS_ACCESS_KEY_ID"):
        found |= {name: given[name] for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")}
    if given.get("GCP_WORKLOAD_IDENTITY_PROVIDER"):
        credentials = _write(folder / "google.json", json.dumps(_google_credentials(given)))
        found["GOOGLE_APPLICATION_CREDENTIALS"] = credentials
    return found


def _aws_session(given: Mapping[str, str]) -> dict[str, str]:
    """Returns keys that AWS gives for one hour in exchange for GitHub's token."""
    with _opened(_token_request(given, _STS_AUDIENCE), "the token of GitHub") as answer:
        token = json.load(answer)["value"]
    parameters = {
        "Action": "AssumeRoleWithWebIdentity",
        "Version": "2011-06-15",
        "RoleArn": given["AWS_ROLE_ARN"],
        "RoleSessionName": f"gpu-tenancy-{given.get('GITHUB_RUN_ID', 'run')}",
        "WebIdentityToken": token,
    }
    address = given.get("AWS_STS_URL") or f"https://sts.{given.get('AWS_REGION') or 'us-east-1'}.amazonaws.com"
    request = urllib.request.Request(  # noqa: S310 (https, or the test's server)
        f"{address}/", urlencode(parameters).encode(), {"Accept": "application/json"}
    )
    with _opened(request, f"a session for the role in the variable AWS_ROLE_ARN ({given['AWS_ROLE_ARN']})") as answer:
        keys = json.load(answer)["AssumeRoleWithWebIdentityResponse"]["AssumeRoleWithWebIdentityResult"]["Credentials"]
    return {
        "AWS_ACCESS_KEY_ID": keys["AccessKeyId"],
        "AWS_SECRET_ACCESS_KEY": keys["SecretAccessKey"],
        "AWS_SESSION_TOKEN": keys["SessionToken"],
    }


def _google_credentials(given: Mapping[str, str]) -> dict[str, object]:
    """Returns a configuration with which Google's libraries fetch GitHub's token by themselves."""
    provider = given["GCP_WORKLOAD_IDENTITY_PROVIDER"]
    request = _token_request(given, f"https://iam.googleapis.com/{provider}")
    account = given.get("GCP_SERVICE_ACCOUNT", "")
    impersonation = f"https://iamcredentials.googleapis.com/v1/projects/-/serviceAccounts/{account}:generateAccessToken"
    return {
        "type": "external_account",
        "audience": f"//iam.googleapis.com/{provider}",
        "subject_token_type": "urn:ietf:params:oauth:token-type:jwt",
        "token_url": "https://sts.googleapis.com/v1/token",
        **({"service_account_impersonation_url": impersonation} if account else {}),
        "credential_source": {
            "url": request.full_url,
            "headers": dict(request.header_items()),
            "format": {"type": "json", "subject_token_field_name": "value"},
        },
    }


def _token_request(given: Mapping[str, str], audience: str) -> urllib.request.Request:
    address, bearer = given.get("ACTIONS_ID_TOKEN_REQUEST_URL"), given.get("ACTIONS_ID_TOKEN_REQUEST_TOKEN")
    if not address or not bearer:
        raise ConnectError("GitHub gives this job no OIDC token; add `id-token: write` to the job's permissions")
    headers = {"Authorization": f"Bearer {bearer}"}
    return urllib.request.Request(f"{address}&audience={quote(audience, safe='')}", headers=headers)  # noqa: S310


def _opened(request: urllib.request.Request, what: str):  # type: ignore[no-untyped-def]
    try:
        return urllib.request.urlopen(request, timeout=_SECONDS)  # noqa: S310
    except urllib.error.HTTPError as error:
        raise ConnectError(f"{what} was refused: {error.code} {error.read(500).decode(errors='replace')}") from None
    except OSError as error:
        raise ConnectError(f"{what} cannot be reached: {error}") from None


def _write(path: Path, text: str) -> str:
    path.touch(mode=0o600)
    path.write_text(text, encoding="utf-8")
    return str(path)


def main() -> int:
    try:
        found = connect(os.environ, Path(os.environ["RUNNER_TEMP"]))
    except ConnectError as error:
        print(f"::error::{error}")
        return 1
    if not found:
        print(f"::notice::skipped: nothing is configured for this job; {_PAGE} lists its variables and secrets")
    for name in ("AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "PULUMI_CONFIG_PASSPHRASE"):
        if found.get(name):
            print(f"::add-mask::{found[name]}")
    with Path(os.environ["GITHUB_ENV"]).open("a", encoding="utf-8") as file:
        file.writelines(f"{name}<<END-OF-{name}\n{value}\nEND-OF-{name}\n" for name, value in found.items())
    with Path(os.environ["GITHUB_OUTPUT"]).open("a", encoding="utf-8") as file:
        file.write(f"ready={'true' if found else 'false'}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
