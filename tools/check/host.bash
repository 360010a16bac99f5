# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
#
# Part of isobox-check: the kernel, users, namespaces, what egress needs.

readonly KERNEL_MIN=5.14 # cgroup.kill; mount_setattr and Landlock are older
readonly EGRESS_MODULES=(veth tun nf_tables nf_conntrack nft_ct nft_reject_ipv4
    nft_masq nft_limit nft_connlimit)

check_kernel() {
	local release machine
	release=$(uname -r)
	machine=$(uname -m)
	case $machine in
	x86_64 | aarch64) ;;
	*) bad kernel "$machine: gVisor runs on x86_64 and aarch64" ;;
	esac
	if version_ge "${release%%[!0-9.]*}" "$KERNEL_MIN"; then
		ok kernel "Linux $release, $machine"
	else
		bad kernel "Linux $release is older than $KERNEL_MIN" \
		    "install a newer kernel, on Debian: apt-get install linux-image-amd64"
	fi
}

check_users() {
	local u
	for u in "$user" "$web_user"; do
		if ! id -u "$u" >/dev/null 2>&1; then
			bad user "there is no $u" \
			    "useradd --system --user-group --no-create-home --shell /usr/sbin/nologin $u"
		elif [ "$(id -u "$u")" = 0 ]; then
			bad user "$u is root: sandboxes would be root's" \
			    "isobox-check --user isobox"
		else
			ok user "$u is uid $(id -u "$u")"
		fi
	done
	if [ "$user" = "$web_user" ]; then
		warn user "$user is both the runner and the web side: who breaks into the one has the other" \
		    "use two users, where you can have two"
	fi
	can_be "$user" || warn user "what $user may do was not tried" \
	    "run isobox-check as root, or as $user"
}

# try_namespaces OPTION...: as unshare(1) has them. With Ubuntu's restriction the
# profile decides that isobox-runner itself would run under.
try_namespaces() {
	local under=()
	if grep -qs '^isobox-runner ' /sys/kernel/security/apparmor/profiles &&
	    command -v aa-exec >/dev/null; then
		under=(aa-exec -p isobox-runner --)
	fi
	as "$user" "${under[@]}" unshare --user --map-root-user --mount --pid \
	    --net --ipc --fork "$@" true >"$tmp/out" 2>&1
}

check_namespaces() {
	local cure='' n
	if [ "$(sysctl_value kernel/unprivileged_userns_clone)" = 0 ]; then
		cure='sysctl -w kernel.unprivileged_userns_clone=1'
	elif [ "$(sysctl_value user/max_user_namespaces)" = 0 ]; then
		cure='sysctl -w user.max_user_namespaces=10000'
	elif [ "$(sysctl_value kernel/apparmor_restrict_unprivileged_userns)" = 1 ]
	then
		cure='load the AppArmor profile of examples/apparmor: apparmor_parser -r /etc/apparmor.d/isobox-runner'
	fi
	if ! can_be "$user"; then
		if [ -n "$cure" ]; then
			bad "user namespaces" "switched off by this host" "$cure"
		fi
		return
	fi
	if ! try_namespaces; then
		bad "user namespaces" "$user cannot make them: $(reason "$tmp/out")" \
		    "${cure:-in a container: start it with a seccomp profile that allows unshare, clone3 and mount}"
		return
	fi
	n=$(sysctl_value user/max_user_namespaces)
	ok "user namespaces" "$user can make them${n:+ (at most $n)}"
	if try_namespaces --mount-proc; then
		ok "proc mount" "possible in a namespace of $user"
	else
		bad "proc mount" "not possible in a namespace of $user: $(reason "$tmp/out")" \
		    "this is a container with parts of /proc hidden; docker, podman: --security-opt systempaths=unconfined"
	fi
}

module_known() {
	[ -d "/sys/module/$1" ] || modprobe -nq "$1" 2>/dev/null ||
		grep -qs "/$1\\.ko" "/lib/modules/$(uname -r)/modules.builtin"
}

# Tries it; then what may lack. Without it a run simply has no network.
check_egress() {
	local m missing=() slirp pasta driver runner
	[ "$(value allow_network)" != false ] || return 0
	runner=$(program isobox-runner) || return 0 # load_config said so
	if ! can_be "$user"; then
		warn egress "not tried" "run isobox-check as root, or as $user"
	elif as "$user" "$runner" ${config:+--config "$config"} --check-egress \
	    >"$tmp/out" 2>"$tmp/err"; then
		ok egress "$(sed -n '1s/^egress: //p' "$tmp/out")"
		return
	else
		warn egress "runs have no network: $(reason "$tmp/err" |
			sed 's/^egress: //')" "what it needs, see below and docs/deploy.md"
	fi
	if [ ! -c /dev/net/tun ]; then
		warn egress "there is no /dev/net/tun" \
		    "modprobe tun; in a container: --device /dev/net/tun"
	elif can_be "$user" && ! as "$user" test -w /dev/net/tun; then
		warn egress "$user may not open /dev/net/tun" "chmod 666 /dev/net/tun"
	fi
	for m in "${EGRESS_MODULES[@]}"; do
		module_known "$m" || missing+=("$m")
	done
	[ ${#missing[@]} = 0 ] || warn egress "the kernel seems to have no ${missing[*]}" \
	    "modprobe them, or a kernel that has them"
	driver=$(value egress_driver) slirp=$(value slirp4netns) pasta=$(value pasta)
	case $driver in
	pasta)
		[ -x "${pasta:=/usr/bin/pasta}" ] || warn egress "there is no $pasta" \
		    "apt-get install passt, of May 2025 or later"
		;;
	*)
		[ -x "${slirp:=/usr/bin/slirp4netns}" ] ||
			warn egress "there is no $slirp" "apt-get install slirp4netns"
		;;
	esac
}
