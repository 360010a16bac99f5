# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
#
# Part of isobox-check: programs, configuration, images, gVisor, the web side.

readonly RUNSC_MIN=20240729 # the first that works with systrap, unprivileged
readonly TRIAL_SECONDS=60
readonly FCGI_SOCKET=/run/isobox-web/fcgi.sock
readonly FRONT_USERS=(www-data caddy)

# value KEY: of what isobox-runner says is in force.
value() {
	sed -n "s/^$1: \"\\?\\([^\"]*\\)\"\\?\$/\\1/p" "$tmp/config" 2>/dev/null || :
}

# check_program NAME USER: its idea of the configuration, as that user.
check_program() {
	local name=$1 who=$2 path run=()
	path=$(program "$name") || {
		bad "$name" "not found beside isobox-check or in PATH" \
		    "make && make install"
		return
	}
	if can_be "$who"; then
		run=(as "$who")
	fi
	if "${run[@]}" "$path" --check-config ${config:+--config "$config"} \
	    >"$tmp/config.new" 2>"$tmp/err"; then
		mv "$tmp/config.new" "$tmp/config"
		ok "$name" "$path accepts the configuration"
	else
		bad "$name" "$(reason "$tmp/err")" "correct it; isobox.yaml(5)"
	fi
}

load_config() {
	check_program isobox.fcgi "$web_user"
	check_program isobox-runner "$user"
	configured_group=$(value cgroup)
	platform=$(value runsc_platform)
	platform=${platform:-systrap}
	runsc=$(value runsc)
	images=$(value images_dir)
	images=${images:-/var/lib/isobox/images}
	registry=$(value registry_dir)
	[ -n "$runsc" ] || runsc=$(command -v runsc || :)
	if ! grep -qsw "$web_user" <<<"$(sed -n 's/^allowed_users: //p' \
	    "$tmp/config" 2>/dev/null)" && [ "$user" != "$web_user" ] &&
	    [ -e "$tmp/config" ]; then
		bad isobox-runner "would refuse $web_user: it is not in allowed_users" \
		    "add \"allowed_users: [$web_user]\" to the configuration"
	fi
}

# image_state NAME: as the service judges it.
image_state() {
	local want have
	want=$(awk -v n="$1" '$2 == n { print $1 }' "$images/images.lock" \
	    2>/dev/null || :)
	have=$(cat "$images/$1.digest" 2>/dev/null || :)
	if [ ! -d "$images/$1" ]; then
		echo missing
	elif [ -z "$want" ]; then
		echo "not in images.lock"
	elif [ "$want" != "$have" ]; then
		echo "differs from images.lock"
	else
		echo good
	fi
}

# Sets image to one that is good.
check_images() {
	local name state names=() good=()
	image=
	if [ ! -d "$registry" ]; then
		bad images "there is no registry ${registry:-(no configuration)}" "make install"
		return
	fi
	mapfile -t names < <(sed -n 's/^image:[[:space:]]*//p' \
	    "$registry"/*.yaml 2>/dev/null | sort -u)
	for name in "${names[@]}"; do
		state=$(image_state "$name")
		case $state in
		good)
			good+=("$name")
			image=$images/$name
			;;
		missing)
			warn images "$name is not built: its languages are not offered" \
			    "isobox-image -d $images build $name"
			;;
		*)
			bad images "$name $state: its languages are refused" \
			    "isobox-image -d $images build --force $name"
			;;
		esac
	done
	if [ ${#good[@]} -gt 0 ]; then
		ok images "${good[*]} in $images match images.lock"
	else
		bad images "none is there" "isobox-image -d $images build --all"
	fi
	if [ -n "$image" ] && can_be "$user" && ! as "$user" test -x "$image"
	then
		bad images "$user may not enter $image" "chmod a+rx $image, and the folders above"
	fi
}

# "runsc version 0.0~20240729.0" (Debian), "release-20240729.0" (upstream).
runsc_date() {
	"$1" --version 2>/dev/null |
		sed -n '1s/.*[^0-9]\(20[0-9]\{6\}\)\..*/\1/p'
}

check_runsc() {
	local date cure='apt-get install runsc (Debian 12: apt-get install -t bookworm-backports runsc); or set runsc: in the configuration'
	if [ -z "$runsc" ] || [ ! -x "$runsc" ]; then
		bad runsc "${runsc:-no runsc} is not there" "$cure"
		runsc=
		return
	fi
	if can_be "$user" && ! as "$user" test -x "$runsc"; then
		bad runsc "$user may not execute $runsc" "chmod a+rx $runsc"
		runsc=
		return
	fi
	date=$(runsc_date "$runsc" || :)
	if [ -z "$date" ]; then
		warn runsc "$runsc does not say of which date it is; it must be $RUNSC_MIN or later"
	elif [ "$date" -lt "$RUNSC_MIN" ]; then
		bad runsc "$runsc is of $date, and must be $RUNSC_MIN or later" "$cure"
	else
		ok runsc "$runsc is of $date"
	fi
}

# A sandbox that says one word, started as isobox-runner does it.
check_platform() {
	local image=$1 begun
	[ -n "$runsc" ] && can_be "$user" || return 0
	if [ -z "$image" ]; then
		warn "gVisor's $platform" "not tried: no image to run"
		return
	fi
	mkdir "$tmp/bundle" "$tmp/state"
	cat >"$tmp/bundle/config.json" <<END
{"ociVersion": "1.0.0",
 "process": {"user": {"uid": 0, "gid": 0}, "cwd": "/",
  "args": ["/bin/sh", "-c", "echo works"], "env": ["PATH=/usr/bin:/bin"],
  "noNewPrivileges": true},
 "root": {"path": "$image", "readonly": true},
 "mounts": [{"destination": "/proc", "type": "proc", "source": "proc"}],
 "linux": {"namespaces": [{"type": "pid"}, {"type": "mount"}, {"type": "ipc"},
  {"type": "uts"}, {"type": "network"}]}}
END
	chown -R "$user:" "$tmp/bundle" "$tmp/state" 2>/dev/null || :
	begun=${EPOCHREALTIME/./}
	as "$user" timeout -k 1 "$TRIAL_SECONDS" unshare --user \
	    --map-root-user --mount --pid --net --ipc --fork --kill-child \
	    --mount-proc "$runsc" --root="$tmp/state" --platform="$platform" \
	    --network=none --ignore-cgroups --overlay2=none run \
	    --bundle="$tmp/bundle" isobox-check </dev/null >"$tmp/out" \
	    2>"$tmp/err" || :
	if [ "$(cat "$tmp/out")" = works ]; then
		ok "gVisor's $platform" "a sandbox ran in $(((${EPOCHREALTIME/./} - begun) / 1000)) ms"
	else
		bad "gVisor's $platform" "no sandbox ran as $user: $(reason "$tmp/err")" \
		    "see the lines above first; else try runsc_platform: ptrace in the configuration"
	fi
}

module_there() {
	local f
	for f in "$@"; do
		[ ! -e "$f" ] || return 0
	done
	return 1
}

check_fronts() {
	local found=0
	if command -v caddy >/dev/null; then
		found=1
		ok "front server" "caddy $(caddy version | cut -d ' ' -f 1)"
	fi
	if command -v apache2 >/dev/null || command -v httpd >/dev/null; then
		found=1
		check_apache
	fi
	if command -v lighttpd >/dev/null; then
		found=1
		ok "front server" "lighttpd"
	fi
	if command -v nginx >/dev/null; then
		found=1
		ok "front server" "nginx"
	fi
	[ "$found" = 1 ] || warn "front server" "no Caddy, Apache, lighttpd or nginx found" \
	    "apt-get install caddy (or apache2, lighttpd, nginx)"
}

check_apache() {
	if ! module_there /usr/lib/apache2/modules/mod_proxy_fcgi.so \
	    /usr/lib*/httpd/modules/mod_proxy_fcgi.so; then
		warn "front server" "Apache without mod_proxy_fcgi" \
		    "install it; plain CGI works, too: examples/cgi"
	elif [ -d /etc/apache2/mods-enabled ] &&
	    [ ! -e /etc/apache2/mods-enabled/proxy_fcgi.load ]; then
		warn "front server" "Apache's mod_proxy_fcgi is not enabled" \
		    "a2enmod proxy_fcgi && systemctl restart apache2"
	else
		ok "front server" "Apache with mod_proxy_fcgi"
	fi
}

# check_socket WHAT PATH WHO...: one of WHO must reach it, strangers must not.
check_socket() {
	local what=$1 path=$2 who reach=()
	shift 2
	if [ ! -S "$path" ]; then
		warn "$what socket" "$path is not there" \
		    "start the service: systemctl start isobox-runner.service isobox-fcgi.socket"
		return
	fi
	if [ "$EUID" != 0 ]; then
		ok "$what socket" "$path is $(stat -c '%A %U:%G' "$path")"
		return
	fi
	for who in "$@"; do
		if can_be "$who" && as "$who" test -w "$path"; then
			reach+=("$who")
		fi
	done
	if as_nobody test -w "$path"; then
		bad "$what socket" "$path: everybody on this host may connect" \
		    "chmod o= $path, or its folder; examples/systemd"
	elif [ ${#reach[@]} = 0 ]; then
		bad "$what socket" "$path: none of $* may connect" \
		    "give it, and its folder, the group of the one who must; examples/systemd"
	else
		ok "$what socket" "$path: ${reach[*]} may connect, strangers may not"
	fi
}

check_sockets() {
	local path
	path=$(value runner_socket)
	[ -z "$path" ] || check_socket runner "$path" "$web_user"
	check_socket FastCGI "$FCGI_SOCKET" "${FRONT_USERS[@]}"
}
