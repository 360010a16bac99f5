# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
#
# What isobox-image runs, as root and in namespaces of its own, to build one
# image.  A recipe, registry/images/NAME/recipe, is bash and sets
#
#	suite		the Debian release that the packages come from
#	version		what `reports` must print; the runtimes that use the
#			image must have it in their version
#	packages	packages, with what they depend on, nothing recommended
#	exclude		paths of packages that are left out (dpkg's patterns)
#	include		paths that are taken all the same
#	variant		essential, the default; or extract: no more than the
#			packages, unpacked and not configured
#
# and defines
#
#	finish		what is done to the tree after the packages (optional)
#	reports		prints the version of the program in the image
#	check		further tests of the finished image (optional)
#
# with the help of in_root, put and npm_files.  finish runs as root in the
# writable tree; reports and check run as the sandbox would have it: nobody, the
# tree read-only.

# --- for recipes --------------------------------------------------------------

# Runs a command in the image.
in_root() {
	local -a as=()

	[[ -z $final ]] || as=(--userspec=65534:65534 --groups=)
	env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
		HOME=/tmp TMPDIR=/tmp LANG=C.UTF-8 \
		"$(command -v chroot)" "${as[@]}" "$root" "$@"
}

# Puts a file of the recipe's folder into the image.
put() {	# FILE, DESTINATION, [MODE]
	install -D -m "${3:-644}" -- "$recipes/$name/$1" "$root$2"
}

# Unpacks a package of the npm registry: its FILES into the image's DIRECTORY.
npm_files() {	# PACKAGE@VERSION, DIRECTORY, FILE...
	local file tarball dir=$work/cache/npm

	command -v npm >/dev/null ||
		die "$name needs the program npm (Debian's package npm)"
	mkdir -p "$dir"
	say "$name" "$1 by npm"
	tarball=$(cd "$dir" && npm pack --silent --cache "$dir/cache" "$1")
	for file in "${@:3}"; do
		tar --extract --gzip --file="$dir/$tarball" --to-stdout \
			"package/$file" >"$work/file"
		install -D -m 755 "$work/file" "$root$2/$(basename "$file")"
	done
}

# Debian's architecture as npm calls it.
npm_arch() {
	case $(dpkg --print-architecture) in
	amd64) echo x64 ;;
	arm64) echo arm64 ;;
	*) die "$name: npm has no Node for this machine's architecture" ;;
	esac
}

expect() {	# WHAT, EXPECTED, GOT
	[[ $2 == "$3" ]] || die "$name: $1: expected \"$2\", got \"$3\""
}

# --- Debian -------------------------------------------------------------------

# The mirror that this machine's apt has for Debian itself.  apt says where it
# would look for the packages' lists, whether it has them already or not.
find_mirror() {
	local codename release uri found=''

	codename=$(. /etc/os-release && echo "${VERSION_CODENAME-}")
	while read -r release uri; do
		case $release in
		"$codename")
			found=$uri
			break
			;;
		stable | testing | unstable | sid | bookworm | trixie | forky)
			found=${found:-$uri}
			;;
		esac
	done < <(apt-get update --print-uris 2>/dev/null |
		sed -n "s|^'\(.*\)/dists/\([^/]*\)/main/binary-.*|\2 \1|p")
	if [[ $found == mirror+file:* ]]; then
		found=$(awk '/^[a-z]+:/ { print $1; exit }' \
			"${found#mirror+file:}")
	fi
	printf '%s' "${found%/}"
}

# Proxies and certificates of this machine's apt are needed here as well.
apt_settings() {
	apt-config dump --no-empty --format '%f "%v";%n' Acquire::http \
		Acquire::https 2>/dev/null |
		grep -E '^Acquire::https?::(Proxy|CaInfo|CaPath)' || :
}

# Says what mmdebstrap is at, from its log: a line when there is news.
follow() {	# PID, LOG
	local line last='' next=0

	while kill -0 "$1" 2>/dev/null; do
		sleep 0.3
		((SECONDS >= next)) || continue
		line=$(awk '
			/^I: running apt-get update/ { s = "package lists" }
			/ newly installed/ {
				n = $3; d = u = c = 0
				s = stage++ ? "packages" : "base system"
			}
			/^Get:/ && n { d++ }
			/^Unpacking / { u++ }
			/^Setting up / { c++ }
			/^I: extracting archives/ { e = 1 }
			END {
				if (!n) print s
				else if (c) printf "%s: %d of %d set up", s, c, n
				else if (u) printf "%s: %d of %d unpacked", s, u, n
				else if (e && stage == 1) print s ": unpacking"
				else printf "%s: %d of %d fetched", s, d, n
			}' "$2")
		if [[ -n $line && $line != "$last" ]]; then
			say "$name" "$line"
			last=$line
			next=$((SECONDS + 5))
		fi
	done
}

run_mmdebstrap() {	# mmdebstrap's arguments
	local log=$work/log pid status=0

	if [[ -n $verbose ]]; then
		mmdebstrap --verbose "$@"
		return
	fi
	mmdebstrap --verbose "$@" >"$log" 2>&1 &
	pid=$!
	follow "$pid" "$log"
	wait "$pid" || status=$?
	((status == 0)) || tail -n 25 "$log" >&2
	return "$status"
}

debian_tree() {
	local mirror keyring keys option
	local -a options=() hooks=()

	mirror=${MIRROR:-$(find_mirror)}
	[[ -n $mirror ]] ||
		die "apt has no Debian mirror here; name one: MIRROR=URL"
	keyring=/usr/share/keyrings/debian-archive-keyring
	for keys in "$keyring.pgp" "$keyring.gpg" ''; do
		[[ ! -f $keys ]] || break
	done
	[[ -n $keys ]] ||
		die "needs Debian's keys (package debian-archive-keyring)"
	for option in 'Acquire::Languages "none";' \
		'APT::Install-Recommends "false";' \
		'Acquire::Retries "3";'; do
		options+=(--aptopt="$option")
	done
	# Debian's testing is often mirrored later than it says it is valid.
	[[ $suite != forky ]] ||
		options+=(--aptopt='Acquire::Check-Valid-Until "false";')
	while read -r option; do
		options+=(--aptopt="$option")
	done < <(apt_settings)
	# For dpkg in the tree only: mmdebstrap filters what it unpacks itself by
	# a Python program for each package, which takes longer than all else.
	{
		printf 'path-exclude=%s\n' "${default_exclude[@]}" "${exclude[@]}"
		((${#include[@]} == 0)) ||
			printf 'path-include=%s\n' "${include[@]}"
	} >"$work/excluded"
	# The packages and lists that an image of the same run has fetched.
	# shellcheck disable=SC2016 # for mmdebstrap's sh
	hooks=(
		--skip=essential/unlink
		--extract-hook='cp "$excluded" "$1/etc/dpkg/dpkg.cfg.d/excluded"'
		--setup-hook="$copy"' "$cache/lists/$suite" "$1/var/lib/apt/lists"'
		--setup-hook="$copy"' "$cache/debs" "$1/var/cache/apt/archives"'
		--customize-hook="$copy"' "$1/var/cache/apt/archives" "$cache/debs"'
		--customize-hook="$copy"' "$1/var/lib/apt/lists" "$cache/lists/$suite"'
	)
	say "$name" "Debian $suite from $mirror"
	export cache=$work/cache suite excluded=$work/excluded
	run_mmdebstrap --mode=root \
		--format=directory --variant="$variant" \
		--include="$(IFS=, && echo "${packages[*]}")" \
		--dpkgopt=force-unsafe-io "${options[@]}" "${hooks[@]}" \
		"$suite" "$root" "deb [signed-by=$keys] $mirror $suite main" ||
		die "$name: mmdebstrap failed"
}

# A hook of mmdebstrap: hard links, or copies, of what the target lacks.
# shellcheck disable=SC2016
copy='c() { mkdir -p "$1" "$2" && find "$1" -maxdepth 1 -type f ! -name lock \
	-exec cp --link --update --target-directory="$2" {} +; }; c'

# Nobody reads manuals in a sandbox; programs speak C.UTF-8.
default_exclude=('/usr/share/man/*' '/usr/share/doc/*' '/usr/share/info/*'
	'/usr/share/locale/*' '/usr/share/lintian/*' '/usr/share/bug/*'
	'/usr/share/bash-completion/*' '/usr/share/fish/*' '/usr/share/zsh/*')

# What the packages' installation needed and a sandbox does not.
strip_tree() {
	find -P "$root" -xdev ! -type f ! -type d ! -type l -delete
	rm -rf -- "${root:?}"/{boot,media,mnt,srv} \
		"$root"/usr/share/{man,doc,info,locale,lintian,bug} \
		"$root"/var/cache/* "$root"/var/log/* "$root"/var/lib/apt \
		"$root"/var/lib/dpkg/{info,alternatives,updates,triggers} \
		"$root"/var/lib/dpkg/*-old "$root"/var/lib/dpkg/lock* \
		"$root"/etc/apt "$root"/etc/hostname "$root"/etc/machine-id \
		"$root"/etc/dpkg "$root"/etc/.pwd.lock
}

# --- one image ----------------------------------------------------------------

# Kernel file systems for the programs of the image; they go with our namespace.
enter_root() {
	local node

	mkdir -p "$root"/{proc,dev,tmp}
	mount --bind "$root" "$root"
	mount -t proc proc "$root/proc"
	mount -t tmpfs -o mode=755 tmpfs "$root/dev"
	mkdir "$root/dev/shm"
	for node in null zero full random urandom; do
		touch "$root/dev/$node"
		mount --bind "/dev/$node" "$root/dev/$node"
	done
	mount -t tmpfs -o mode=1777 tmpfs "$root/tmp"
	[[ -z $final ]] || mount -o remount,bind,ro "$root"
}

leave_root() {
	# Lazily: a helper of the last program may be about to end.
	umount --recursive --lazy "$root"
}

# A runtime must not say another version than the one that is checked here.
check_versions() {
	local file says exact=${version//./\\.}

	# shellcheck disable=SC2154 # isobox-image has it
	for file in "$registry"/*.yaml; do
		[[ -f $file && $(yaml_value "$file" image) == "$name" ]] ||
			continue
		says=$(yaml_value "$file" version)
		[[ $says =~ (^|[^0-9.])$exact($|[^0-9.]) ]] ||
			die "$file says version $says, but the image $name has" \
				"$version"
	done
}

build_inside() {	# NAME, WORK
	local name=$1 work=$2 root=$2/root recipes=$registry/images final=''
	local suite='' version='' variant=essential got
	local -a packages=() exclude=() include=()

	finish() { :; }
	reports() { die "$name: the recipe does not define reports"; }
	check() { :; }
	# shellcheck source=/dev/null
	. "$recipes/$name/recipe"
	[[ -n $suite && -n $version && ${#packages[@]} -gt 0 ]] ||
		die "$name: the recipe must set suite, version and packages"
	check_versions
	debian_tree
	say "$name" "finishing"
	enter_root
	finish
	leave_root
	strip_tree
	settle "$root"
	say "$name" "checking"
	final=1
	enter_root
	got=$(reports) || die "$name: its program does not run"
	expect "the version" "$version" "$got"
	check
	leave_root
}
