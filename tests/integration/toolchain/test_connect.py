"""Tests the script with which the workflows connect to the state's cloud and to the cluster."""

import json
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from tests.support.paths import ROOT

KEYS = {"AccessKeyId": "ASIA1", "SecretAccessKey": "hush", "SessionToken": "short"}


class Cloud(BaseHTTPRequestHandler):
    """Answers as GitHub's OIDC provider and as the security token service of AWS."""

    def do_GET(self) -> None:
        audience = parse_qs(urlsplit(self.path).query)["audience"][0]
        known = self.headers["Authorization"] == "Bearer of-the-job"
        self._answer({"value": f"token for {audience}"} if known else None)

    def do_POST(self) -> None:
        given = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
        right = given["WebIdentityToken"] == ["token for sts.amazonaws.com"] and given["RoleArn"] == ["arn:role"]
        answer = {"AssumeRoleWithWebIdentityResponse": {"AssumeRoleWithWebIdentityResult": {"Credentials": KEYS}}}
        self._answer(answer if right else None)

    def _answer(self, found: Mapping[str, object] | None) -> None:
        body = json.dumps(found or {"message": "not you"}).encode()
        self.send_response(200 if found else 403)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def cloud() -> Iterator[dict[str, str]]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Cloud)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    address = f"http://127.0.0.1:{server.server_port}"
    token = {"ACTIONS_ID_TOKEN_REQUEST_URL": f"{address}/?v=1", "ACTIONS_ID_TOKEN_REQUEST_TOKEN": "of-the-job"}
    yield {**token, "AWS_STS_URL": address}
    server.shutdown()
    thread.join()
    server.server_close()


class Job:
    """A job of a workflow that has run the script."""

    def __init__(self, folder: Path, **environment: str) -> None:
        files = {"GITHUB_ENV": str(folder / "env"), "GITHUB_OUTPUT": str(folder / "output")}
        script = [sys.executable, "-I", str(ROOT / ".github" / "connect.py")]
        self.done = subprocess.run(
            script,
            env={**files, "RUNNER_TEMP": str(folder), **environment},
            capture_output=True,
            text=True,
            check=False,
        )
        self._folder = folder

    @property
    def environment(self) -> dict[str, str]:
        found, lines = {}, iter((self._folder / "env").read_text().splitlines())
        for line in lines:
            name, _, end = line.partition("<<")
            found[name] = "\n".join(iter(lines.__next__, end))
        return found

    @property
    def is_ready(self) -> bool:
        return (self._folder / "output").read_text() == "ready=true\n"


STATE = {"PULUMI_BACKEND_URL": "s3://state"}


@pytest.mark.parametrize("needs", [{}, {"NEEDS_CLUSTER": "true"}])
def test_a_bare_fork_skips_its_jobs_with_a_notice(tmp_path: Path, needs: dict[str, str]) -> None:
    job = Job(tmp_path, KUBECONFIG="", PULUMI_BACKEND_URL="", **needs)
    assert job.done.returncode == 0
    assert job.done.stdout.startswith("::notice::skipped: nothing is configured")
    assert (job.is_ready, job.environment) == (False, {})


def test_a_half_configured_job_names_what_is_missing(tmp_path: Path) -> None:
    job = Job(tmp_path, NEEDS_CLUSTER="true", **STATE)
    assert job.done.returncode == 1
    assert job.done.stdout.startswith("::error::the secret KUBECONFIG of this job's environment is not set")


def test_aws_gives_a_session_for_githubs_token(tmp_path: Path, cloud: dict[str, str]) -> None:
    job = Job(tmp_path, AWS_ROLE_ARN="arn:role", AWS_ACCESS_KEY_ID="long-lived", **STATE, **cloud)
    assert job.done.returncode == 0, job.done.stdout + job.done.stderr
    assert job.is_ready
    assert job.environment == {
        **STATE,
        "AWS_ACCESS_KEY_ID": "ASIA1",
        "AWS_SECRET_ACCESS_KEY": "hush",
        "AWS_SESSION_TOKEN": "short",
    }
    assert "::add-mask::hush" in job.done.stdout


def test_long_lived_keys_are_the_second_choice(tmp_path: Path) -> None:
    job = Job(tmp_path, AWS_ACCESS_KEY_ID="a", AWS_SECRET_ACCESS_KEY="b", AWS_REGION="eu-central-1", **STATE)
    assert job.environment == {
        **STATE,
        "AWS_REGION": "eu-central-1",
        "AWS_ACCESS_KEY_ID": "a",
        "AWS_SECRET_ACCESS_KEY": "b",
    }


def test_google_fetches_githubs_token_by_itself(tmp_path: Path, cloud: dict[str, str]) -> None:
    job = Job(tmp_path, GCP_WORKLOAD_IDENTITY_PROVIDER="projects/1/p", GCP_SERVICE_ACCOUNT="a@b", **STATE, **cloud)
    written = json.loads(Path(job.environment["GOOGLE_APPLICATION_CREDENTIALS"]).read_text())
    assert written["audience"] == "//iam.googleapis.com/projects/1/p"
    assert written["credential_source"]["url"].endswith("audience=https%3A%2F%2Fiam.googleapis.com%2Fprojects%2F1%2Fp")
    assert written["credential_source"]["headers"] == {"Authorization": "Bearer of-the-job"}


def test_only_the_job_may_read_the_kubeconfig(tmp_path: Path) -> None:
    job = Job(tmp_path, NEEDS_CLUSTER="true", KUBECONFIG="apiVersion: v1", **STATE)
    kubeconfig = Path(job.environment["KUBECONFIG"])
    assert (kubeconfig.read_text(), oct(kubeconfig.stat().st_mode)[-3:]) == ("apiVersion: v1", "600")
