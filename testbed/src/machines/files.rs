//! Makes the configuration files of a machine's programs.

use std::net::Ipv4Addr;
use std::path::Path;

use serde_json::{Value, json};

/// Of all pods, on whatever machine.
const PODS: &str = "10.244.0.0/16";

/// A kubelet's `KubeletConfiguration`. It leaves alone what is the machine's that all of this runs on: its control groups
/// (but for those of containers), its swap, its disk's fill.
pub(super) fn kubelet_configuration(address: Ipv4Addr, authority: &Path) -> Value {
    json!({
        "apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",
        "address": address,
        "authentication": {
            "anonymous": {"enabled": false}, "webhook": {"enabled": true},
            "x509": {"clientCAFile": authority},
        },
        "authorization": {"mode": "Webhook"},
        "containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
        "failCgroupV1": false, "cgroupDriver": "cgroupfs", "cgroupsPerQOS": false, "enforceNodeAllocatable": [],
        "localStorageCapacityIsolation": false, "failSwapOn": false,
        "evictionHard": {"memory.available": "0%", "nodefs.available": "0%", "imagefs.available": "0%"},
        "imageGCHighThresholdPercent": 100, "imageGCLowThresholdPercent": 99,
        "nodeStatusUpdateFrequency": "2s",
        "shutdownGracePeriod": "0s", "volumePluginDir": "/var/lib/kubelet/volume-plugins",
    })
}

pub(super) fn proxy_configuration(kubeconfig: &Path, node: &str) -> Value {
    json!({
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1", "kind": "KubeProxyConfiguration",
        "clientConnection": {"kubeconfig": kubeconfig},
        "mode": "nftables", "clusterCIDR": PODS, "hostnameOverride": node,
        // Limits of the kernel are the machine's.
        "conntrack": {"maxPerCore": 0, "min": 0},
    })
}

/// containerd's configuration (its version 3); `programs` holds the network plug-ins, too.
pub(super) fn containerd_configuration(
    machine: &Path,
    programs: &Path,
    sandbox_image: &str,
) -> String {
    let (machine, programs) = (machine.display(), programs.display());
    format!(
        r#"version = 3
root = "/var/lib/containerd"
state = "/run/containerd"

[debug]
level = "warn"

[grpc]
address = "/run/containerd/containerd.sock"

[plugins."io.containerd.cri.v1.images".pinned_images]
sandbox = "{sandbox_image}"

[plugins."io.containerd.cri.v1.runtime"]
# Root may be without CAP_SYS_RESOURCE.
restrict_oom_score_adj = true

[plugins."io.containerd.cri.v1.runtime".cni]
bin_dirs = ["{programs}"]
conf_dir = "{machine}/cni"
"#
    )
}

/// The file by which a kubelet knows the operating system.
pub(super) fn os_release(pretty_name: &str) -> String {
    format!("NAME=Bottlerocket\nID=bottlerocket\nPRETTY_NAME=\"{pretty_name}\"\n")
}
