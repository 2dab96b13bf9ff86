"""ResourceSlices: an exporter may write only the ResourceSlices of its own node and of our driver.

An account that may write ResourceSlices can publish devices that do not exist, on any node and for any driver. RBAC
cannot limit the right to write ResourceSlices to one node and one driver. An example of Kubernetes limits DRA drivers
to their own ResourceSlices in the same way (kubernetes-sigs/dra-example-driver, deployments/helm,
validatingadmissionpolicy.yaml).
"""

from components.base.manifest import Manifest
from tenancy import names, policy_names
from tenancy.admission import cel
from tenancy.admission.policy import ResourceRule, Scope, validating
from tenancy.names import Names

# The API server takes the node's name from the pod's token (ServiceAccountTokenPodNodeInfo, from Kubernetes 1.30 on).
_NODE = "authentication.kubernetes.io/node-name"
_RULES = tuple(
    ResourceRule(operation, ("resourceslices",), group=names.RESOURCE_GROUP) for operation in ("CREATE", "UPDATE")
)


def exporter_writes(resources: Names, namespace: str) -> Manifest:
    agent, driver = names.EXPORTER, resources.device_driver
    return validating(
        policy_names.DEVICE_SLICES,
        Scope({}, {"is-exporter": f"request.userInfo.username == {cel.quoted_account(namespace, agent)}"}, _RULES),
        {
            "variables.node != ''": f"{agent} writes only with its pod's token, which names its node",
            "object.spec.?nodeName.orValue('') == variables.node && object.spec.pool.name == variables.node": (
                f"{agent} may publish only the devices of the node that it runs on"
            ),
            f"object.spec.driver == {cel.quoted(driver)}": f"{agent} may publish only for the driver {driver}",
        },
        {"node": f"request.userInfo.?extra[?{cel.quoted(_NODE)}][?0].orValue('')"},
        component="exporter",
    )
