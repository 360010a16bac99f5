# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
#
# Part of isobox-check: the service's cgroup subtree and its caps.
# The same rules as in runner/cgroup.c, which has the last word.

readonly CONTROLLERS=(memory pids cpu)

# Of each controller's v1 hierarchy, and of "v2": where it is mounted, and which
# part of it that is.
declare -A mount_point=() mount_root=()

find_mounts() {
	local key point root
	while read -r key point root; do
		[ -z "${mount_point[$key]-}" ] || continue
		mount_point[$key]=$point
		mount_root[$key]=$root
	done < <(awk '{
		for (i = 7; $i != "-"; i++) ;
		if ($(i + 1) == "cgroup2") print "v2", $5, $4
		if ($(i + 1) != "cgroup") next
		n = split($(i + 3), option, ",")
		for (j = 1; j <= n; j++) print option[j], $5, $4
	}' /proc/self/mountinfo)
}

# group_dir CONTROLLER PATH: where PATH of the hierarchy is on this host.
group_dir() {
	local rest=$2
	[ "${mount_root[$1]}" = / ] || rest=${rest#"${mount_root[$1]}"}
	rest=${mount_point[$1]}${rest%/}
	echo "${rest%/}"
}

# v1, v2, mixed or none, as isobox-runner decides it.
group_version() {
	local c v1=0
	for c in "${CONTROLLERS[@]}"; do
		[ -z "${mount_point[$c]-}" ] || v1=$((v1 + 1))
	done
	case $v1 in
	0) [ -z "${mount_point[v2]-}" ] && echo none || echo v2 ;;
	"${#CONTROLLERS[@]}") echo v1 ;;
	*) echo mixed ;;
	esac
}

# The path in the text of a /proc/PID/cgroup; "main" and leaves taken off.
path_of() {
	awk -v version="$version" -F : '
	version == "v2" ? $2 == "" : ("," $2 ",") ~ /,memory,/ {
		sub(/^[^:]*:[^:]*:/, "")
		sub(/\/(main|run-[^\/]*)$/, "")
		print
		exit
	}' "$1" 2>/dev/null || :
}

running_runner() {
	local p comm
	for p in /proc/[0-9]*; do
		if read -r comm 2>/dev/null <"$p/comm" &&
		    [ "$comm" = isobox-runner ] &&
		    [ "$(stat -c %U "$p" 2>/dev/null)" = "$user" ]; then
			echo "$p"
			return
		fi
	done
}

unit_property() {
	systemctl show -P "$1" isobox-runner.service 2>/dev/null || :
}

# Sets subtree and whose it is: the configured one, the running service's, the
# one that we are in, or one made for a trial. What systemd will make is checked
# by its unit instead.
find_subtree() {
	local p
	subtree=
	p=$(running_runner)
	if [ -n "$configured_group" ]; then
		subtree=$configured_group
		whose="from the configuration"
	elif [ -n "$p" ]; then
		subtree=$(path_of "$p/cgroup")
		whose="of the isobox-runner that is running"
	elif [ "$EUID" != 0 ]; then
		subtree=$(path_of /proc/self/cgroup)
		whose="that isobox-check was started in"
	elif [ -d /run/systemd/system ]; then
		return
	elif can_be "$user" && program isobox-cgroup >/dev/null; then
		trial_group=isobox-check.$$
		if "$(program isobox-cgroup)" exec "$trial_group" --user "$user" \
		    -- true >"$tmp/out" 2>&1; then
			subtree=/$trial_group
			whose="made by isobox-cgroup for this trial"
		fi
	fi
}

check_cgroups() {
	local c missing=()
	find_mounts
	version=$(group_version)
	case $version in
	v1 | v2) ;;
	mixed)
		bad cgroups "some of ${CONTROLLERS[*]} are in version 1, others are not" \
		    "start the kernel with systemd.unified_cgroup_hierarchy=1"
		return
		;;
	none)
		bad cgroups "no cgroup file system is mounted" \
		    "mount -t cgroup2 none /sys/fs/cgroup"
		return
		;;
	esac
	if [ "$version" = v2 ]; then
		for c in "${CONTROLLERS[@]}"; do
			grep -qsw "$c" "$(group_dir v2 /)/cgroup.controllers" ||
				missing+=("$c")
		done
	fi
	if [ ${#missing[@]} -gt 0 ]; then
		bad cgroups "version 2 has no ${missing[*]} controller here" \
		    "enable it in the kernel (cgroup_enable=memory), or give it to this container"
		return
	fi
	ok cgroups "version ${version#v} has ${CONTROLLERS[*]}"
	find_subtree
	if [ -n "$subtree" ]; then
		check_subtree
	elif [ -d /run/systemd/system ]; then
		check_unit
	else
		bad delegation "no cgroup subtree belongs to $user" \
		    "as root: isobox-cgroup exec isobox --user $user -- setpriv --reuid $user --regid $user --clear-groups isobox-runner"
	fi
}

# Each directory of the subtree, and the controller whose it is.
subtree_dirs() {
	local c
	if [ "$version" = v2 ]; then
		echo "$(group_dir v2 "$subtree") v2"
		return
	fi
	for c in "${CONTROLLERS[@]}"; do
		echo "$(group_dir "$c" "$subtree") $c"
	done
}

check_subtree() {
	local dir c missing=() cure
	cure="systemd: Delegate=yes and User=$user in the unit; else: isobox-cgroup exec"
	while read -r dir c; do
		if [ ! -d "$dir" ]; then
			bad delegation "$dir is not there ($whose)" "$cure"
			return
		fi
		if can_be "$user" && ! as "$user" test -w "$dir"; then
			bad delegation "$user may not make groups in $dir ($whose)" "$cure"
			return
		fi
		if [ "$c" = v2 ] && can_be "$user" &&
		    ! as "$user" test -w "$dir/cgroup.subtree_control"; then
			bad delegation "$user may not write cgroup.subtree_control and cgroup.procs of $dir ($whose)" "$cure"
			return
		fi
		[ "$c" = v2 ] || continue
		for c in "${CONTROLLERS[@]}"; do
			grep -qsw "$c" "$dir/cgroup.controllers" || missing+=("$c")
		done
		if [ ${#missing[@]} -gt 0 ]; then
			bad delegation "$dir has no ${missing[*]} controller ($whose)" \
			    "systemd: Delegate=yes; else as root: echo '+memory +pids +cpu' >${dir%/*}/cgroup.subtree_control"
			return
		fi
	done < <(subtree_dirs)
	ok delegation "$subtree belongs to $user ($whose)"
	check_caps
}

# cap DIR FILE: the least limit of DIR and of all above it that the user cannot
# lift; "own" where there are others only; nothing where there is none.
cap() {
	local dir=$1 file=$2 n least='' own=''
	while [ -e "$dir/cgroup.procs" ]; do
		n=$(cat "$dir/$file" 2>/dev/null || echo max)
		# 19 digits: how version 1 writes that there is no limit
		if [[ $n =~ ^[0-9]{1,18}$ ]]; then
			if can_be "$user" && as "$user" test -w "$dir/$file"; then
				own=own
			elif [ -z "$least" ] || [ "$n" -lt "$least" ]; then
				least=$n
			fi
		fi
		dir=$(dirname "$dir")
	done
	echo "${least:-$own}"
}

check_caps() {
	local dir file
	if [ "$version" = v2 ]; then
		dir=$(group_dir v2 "$subtree") file=memory.max
		swap_file=memory.swap.max
	else
		dir=$(group_dir memory "$subtree") file=memory.limit_in_bytes
		swap_file=memory.memsw.limit_in_bytes
	fi
	judge_cap "$(cap "$dir" "$file")" "$dir/$file"
	judge_swap "$(cap "$dir" "$swap_file")" "$dir/$swap_file"
}

meminfo() {
	awk -v key="$1:" '$1 == key { print $2 }' /proc/meminfo
}

# judge_cap LIMIT FILE
judge_cap() {
	local ram cure
	ram=$(($(meminfo MemTotal) * 1024))
	cure="systemd: MemoryMax=75% in the unit; else as root: echo $((ram * 3 / 4)) >$2"
	case $1 in
	'' | infinity) bad "memory cap" "none on $subtree: nothing runs without it" "$cure" ;;
	own)
		bad "memory cap" "$user could lift it" "chown root: $2"
		;;
	*)
		if [ "$1" -ge "$ram" ]; then
			bad "memory cap" "$(mib "$1") is not below this host's $(mib "$ram")" "$cure"
		else
			ok "memory cap" "$(mib "$1") of this host's $(mib "$ram")"
		fi
		;;
	esac
}

judge_swap() {
	local swap
	swap=$(($(meminfo SwapTotal) * 1024))
	if [ "$swap" = 0 ]; then
		ok swap "this host has none"
	elif [[ $1 =~ ^[0-9]+$ ]]; then
		ok swap "this host has $(mib "$swap"), $subtree is kept out of it"
	else
		bad swap "this host has $(mib "$swap") and nothing keeps $subtree out of it" \
		    "systemd: MemorySwapMax=0 in the unit; else as root: limit $2 (where it is missing: kernel parameter swapaccount=1)"
	fi
}

# Under systemd the subtree comes with the service.
check_unit() {
	if [ "$(unit_property LoadState)" != loaded ]; then
		bad delegation "systemd has no isobox-runner.service" \
		    "make install, then: systemctl daemon-reload && systemctl enable --now isobox-runner.service isobox-fcgi.socket"
		return
	fi
	subtree=isobox-runner.service
	if [ "$(unit_property Delegate)" != yes ] ||
	    [ "$(unit_property User)" != "$user" ]; then
		bad delegation "isobox-runner.service delegates nothing to $user" \
		    "set Delegate=yes and User=$user: systemctl edit isobox-runner.service"
		return
	fi
	ok delegation "isobox-runner.service gives $user a subtree when it starts"
	judge_cap "$(unit_property MemoryMax)" \
	    "/sys/fs/cgroup/system.slice/$subtree/memory.max"
	judge_swap "$(unit_property MemorySwapMax)" memory.swap.max
}
