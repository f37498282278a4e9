# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Changes of Go modules before the build: `kubectl exec` of kwok, OLM's programs on loopback, and an NFD operator like current releases."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Edit:
    """A change of one file of a Go module, made in a copy of the module before the build; the old text occurs once."""

    module: str
    file: str
    old: str
    new: str


KWOK_MODULE = "sigs.k8s.io/kwok"
_KWOK_EXEC = "pkg/kwok/server/debugging_exec.go"
KWOK = (
    # One program answers all commands, so that an unknown command has an exit status, as in a shell.
    Edit(
        KWOK_MODULE,
        _KWOK_EXEC,
        "\t// Set cancel context.\n",
        '\tcmd = append([]string{"/shims/exec"}, cmd...)\n\n\t// Set cancel context.\n',
    ),
    # The API server passes on the exit status of a command only if the error has this type.
    Edit(
        KWOK_MODULE,
        _KWOK_EXEC,
        "\terr := utilsexec.Exec(ctx, cmd[0], cmd[1:]...)\n",
        "\terr := utilsexec.Exec(ctx, cmd[0], cmd[1:]...)\n\tvar ended *osexec.ExitError\n\tif errors.As(err, &ended) {\n"
        "\t\treturn utilexec.CodeExitError{Err: err, Code: ended.ExitCode()}\n\t}\n",
    ),
    Edit(
        KWOK_MODULE,
        _KWOK_EXEC,
        'import (\n\t"context"\n',
        'import (\n\t"context"\n\t"errors"\n\tosexec "os/exec"\n\n\tutilexec "k8s.io/utils/exec"\n\n',
    ),
    # A command that reads its standard input to the end would wait forever.
    Edit(
        KWOK_MODULE,
        "pkg/utils/exec/exec.go",
        "\t\t\t\t_, _ = io.Copy(inPipe, opt.In)\n",
        "\t\t\t\t_, _ = io.Copy(inPipe, opt.In)\n\t\t\t\t_ = inPipe.Close()\n",
    ),
)
LIFECYCLE_MANAGER = "github.com/operator-framework/operator-lifecycle-manager"
REGISTRY = "github.com/operator-framework/operator-registry"
_AUTHORIZATION_CACHE = (
    "\t// The platform generally uses 30s for /metrics scraping, avoid API request for every other /metrics request to the"
    " component\n\tauthorizationOptions"
)
OLM = (
    # The programs of OLM would serve metrics on all interfaces.
    Edit(
        LIFECYCLE_MANAGER,
        "pkg/lib/server/server.go",
        "(tlsEnabled bool) string {\n",
        '(tlsEnabled bool) string {\n\tif address := os.Getenv("OLM_METRICS_ADDR"); address != "" {\n\t\treturn address\n\t}\n',
    ),
    Edit(LIFECYCLE_MANAGER, "pkg/lib/server/server.go", '\t"net/http"\n', '\t"net/http"\n\t"os"\n'),
    # The package server ignores --kubeconfig for authorization, because OLM sets the option of authentication twice.
    Edit(
        LIFECYCLE_MANAGER,
        "pkg/package-server/server/server.go",
        "authenticationOptions.RemoteKubeConfigFile = o.Kubeconfig\n\n" + _AUTHORIZATION_CACHE,
        "authorizationOptions.RemoteKubeConfigFile = o.Kubeconfig\n\n" + _AUTHORIZATION_CACHE,
    ),
    Edit(REGISTRY, "cmd/opm/serve/serve.go", '"tcp", ":"+s.port', '"tcp", "127.0.0.1:"+s.port'),
)
NFD_MODULE = "github.com/openshift/cluster-nfd-operator"
_NFD_TYPES = "api/v1/nodefeaturediscovery_types.go"
_NFD_CONTROLS = "controllers/nodefeaturediscovery_controls.go"
# The operator is of OpenShift 4.12. In these points the lab's one behaves like the current releases (internal/daemonset/worker.go,
# api/v1/nodefeaturediscovery_types.go of openshift/cluster-nfd-operator).
NFD_OPERATOR = (
    # The flag of the address for health probes has no effect, and the operator would listen on all interfaces.
    Edit(NFD_MODULE, "main.go", '\tprobeAddr := ":8081"\n', ""),
    Edit(NFD_MODULE, "main.go", "HealthProbeBindAddress: probeAddr", "HealthProbeBindAddress: args.probeAddr"),
    # workerTolerations and masterTolerations are added to the tolerations of the pods.
    Edit(
        NFD_MODULE,
        _NFD_TYPES,
        '\tServicePort int `json:"servicePort"`\n',
        '\tServicePort int `json:"servicePort"`\n'
        '\tWorkerTolerations []corev1.Toleration `json:"workerTolerations,omitempty"`\n'
        '\tMasterTolerations []corev1.Toleration `json:"masterTolerations,omitempty"`\n',
    ),
    Edit(
        NFD_MODULE,
        _NFD_CONTROLS,
        "\tobj := n.resources[state].DaemonSet\n",
        "\tobj := *n.resources[state].DaemonSet.DeepCopy()\n"
        "\tobj.Spec.Template.Spec.Tolerations = append(obj.Spec.Template.Spec.Tolerations, n.ins.Spec.Operand.WorkerTolerations...)\n",
    ),
    Edit(
        NFD_MODULE,
        _NFD_CONTROLS,
        "\tobj := n.resources[state].Deployment\n",
        "\tobj := *n.resources[state].Deployment.DeepCopy()\n"
        "\tobj.Spec.Template.Spec.Tolerations = append(obj.Spec.Template.Spec.Tolerations, n.ins.Spec.Operand.MasterTolerations...)\n",
    ),
    # Without spec.operand.image, the image is that of the operator's environment.
    Edit(
        NFD_MODULE,
        _NFD_TYPES,
        "\treturn o.Image\n",
        '\tif o.Image == "" {\n\t\treturn os.Getenv("NODE_FEATURE_DISCOVERY_IMAGE")\n\t}\n\treturn o.Image\n',
    ),
    Edit(NFD_MODULE, _NFD_TYPES, "import (\n", 'import (\n\t"os"\n\n'),
    # Workers publish NodeFeature objects, which the master reads.
    Edit(
        NFD_MODULE,
        "build/assets/master/0200_clusterrole.yaml",
        "rules:\n",
        "rules:\n- apiGroups: [nfd.k8s-sigs.io]\n"
        "  resources: [nodefeatures, nodefeaturerules, nodefeaturegroups, nodefeaturegroups/status]\n"
        "  verbs: [get, list, watch, patch, update]\n"
        '- apiGroups: [""]\n  resources: [nodes, namespaces]\n  verbs: [get, list, watch]\n'
        "- apiGroups: [coordination.k8s.io]\n  resources: [leases]\n  verbs: [create, get, update]\n",
    ),
)
