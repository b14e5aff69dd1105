# Process 1 of a machine. Its namespaces end with it, and with them all that runs there: as if the power failed.
# MACHINE: its folder; the other variables are set by machine.rs.
set -euo pipefail

hostname "$NAME"
# What kubelets set for a whole kernel has the wanted value here already, so that they leave the real one alone.
for setting in vm/overcommit_memory=1 vm/panic_on_oom=0 kernel/panic=10 kernel/panic_on_oops=1 \
    kernel/keys/root_maxkeys=1000000 kernel/keys/root_maxbytes=25000000; do
    file=$MACHINE/settings/${setting%=*}
    mkdir -p "${file%/*}"
    echo "${setting#*=}" >"$file"
    mount --bind "$file" "/proc/sys/${setting%=*}"
done
# /var outlives a boot, /run is what the host has put there. Nothing of the real ones is seen.
mount -t tmpfs none /opt
mount --bind "$MACHINE/var" /var
mount --bind "$MACHINE/run" /run
mount --bind "$MACHINE/os-release" /etc/os-release
mount --bind /run/boot-id /proc/sys/kernel/random/boot_id

ip netns add machine
# That of the last boot goes with its namespace, some time.
ip link delete "$LINK" 2>/dev/null || true
ip link add "$LINK" type veth peer name eth0 netns machine
ip link set "$LINK" master "$BRIDGE" up
inside() { nsenter --net=/run/netns/machine "$@"; }
inside ip link set lo up
inside ip address add "$ADDRESS/24" dev eth0
inside ip link set eth0 up
inside ip route add default via "$GATEWAY"
inside bash -c 'echo 1 >/proc/sys/net/ipv4/ip_forward'

started() { # name command...: in the machine's network, with a log of its own
    local name=$1
    shift
    inside "$@" >>"$MACHINE/$name.log" 2>&1 &
}
started containerd containerd --config "$MACHINE/containerd.toml"
client() { ctr --address /run/containerd/containerd.sock --namespace k8s.io "$@"; }
for _ in {1..100}; do
    ! client version >/dev/null 2>&1 || break
    sleep 0.1
done
if [[ ! -e /var/lib/images-are-loaded ]]; then
    for image in "$MACHINE"/images/*; do
        client images import --local "$image"
    done
    touch /var/lib/images-are-loaded
fi
started kube-proxy kube-proxy --config "$MACHINE/kube-proxy.json"
started kubelet kubelet --config "$MACHINE/kubelet.json" --kubeconfig "$MACHINE/kubeconfig" \
    --hostname-override "$NAME" --node-ip "$ADDRESS" --node-labels "$LABELS" --root-dir /var/lib/kubelet
# None of them ends by itself.
wait -n || true
echo "a program of $NAME has ended"
exit 1
