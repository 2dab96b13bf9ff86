"""ResourceSlices: an exporter may write its own node's, of our driver, and nothing else.

The right to write ResourceSlices is the right to make devices up on any node, for any driver, and RBAC knows neither
nodes nor drivers. Kubernetes' own example bounds DRA drivers alike (kubernetes-sigs/dra-example-driver,
deployments/helm, validatingadmissionpolicy.yaml).
"""

from components.admission import cel
from components.admission.policy import ResourceRule, Scope, validating
from components.base.manifest import Manifest
from tenancy import names
from tenancy.names import Names

_COMPONENT = "exporter"
_GROUP = names.RESOURCE_API.partition("/")[0]
# The API server's word, from the token of the pod (feature ServiceAccountTokenPodNodeInfo, from Kubernetes 1.30 on).
_NODE = "authentication.kubernetes.io/node-name"


def exporter_writes(resources: Names, namespace: str) -> Manifest:
    """Policy: an exporter publishes the devices of the node that it runs on, under our driver."""
    account = cel.text(f"system:serviceaccount:{namespace}:{names.EXPORTER}")
    agent, driver = names.EXPORTER, resources.device_driver
    return validating(
        _COMPONENT,
        names.DEVICE_SLICES,
        Scope(
            namespaces={},
            conditions={"is-exporter": f"request.userInfo.username == {account}"},
            rules=tuple(
                ResourceRule(operation, ("resourceslices",), group=_GROUP) for operation in ("CREATE", "UPDATE")
            ),
        ),
        {
            "variables.node != ''": f"{agent} writes only with its pod's token, which names its node",
            "object.spec.?nodeName.orValue('') == variables.node && object.spec.pool.name == variables.node": (
                f"{agent} may publish only the devices of the node that it runs on"
            ),
            f"object.spec.driver == {cel.text(driver)}": f"{agent} may publish only for the driver {driver}",
        },
        {"node": f"request.userInfo.?extra[?{cel.text(_NODE)}][?0].orValue('')"},
    )
