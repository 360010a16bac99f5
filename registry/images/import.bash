# shellcheck shell=bash disable=SC2154
# SPDX-License-Identifier: Apache-2.0
#
# isobox-image import: a tree of files from an archive that nobody vouches for.
# Names are looked at before anything is unpacked, links and kinds of files
# before anything is done with the tree.

# Every name in the archive, and no other surprise: stdout, one a line, escaped.
archive_names() {	# FILE
	local list=$work/names

	tar --list --absolute-names --quoting-style=escape --file="$1" \
		>"$list" 2>"$work/errors" ||
		die "$1 is not a whole tar archive: $(first_error)"
	[[ -s $list ]] || die "$1 is an empty archive"
	if grep -m 1 -E '^/|(^|/)\.\.(/|$)' "$list" >"$work/errors"; then
		die "$1 is refused: its member \"$(first_error)\" would leave" \
			"the root file system"
	fi
}

first_error() {
	head -n 1 "$work/errors" | cut -c 1-300
}

archive_kind() {
	if grep -qxE '(\./)?oci-layout' "$work/names"; then
		echo oci-archive
	elif grep -qxE '(\./)?manifest\.json' "$work/names"; then
		echo docker-archive
	else
		echo rootfs
	fi
}

# As files of ours in ROOT, without anybody's rights.  What tar cannot put below
# ROOT it refuses.
extract() {	# ROOT, tar's options
	local root=$1

	mkdir -- "$root"
	tar --extract --file="$work/archive" --directory="$root" \
		--no-same-owner --no-same-permissions --delay-directory-restore \
		--no-xattrs --no-acls --no-selinux --warning=no-timestamp \
		--warning=no-unknown-keyword "${@:2}" 2>"$work/errors" ||
		die "cannot unpack the archive: $(first_error)"
	# tar cuts "/" and "../" off the target of a hard link, and says so.
	! grep -q 'Removing leading' "$work/errors" ||
		die "the archive is refused: a hard link leads out of the root" \
			"file system"
	chmod -R u+rwX -- "$root"
}

unpack_rootfs() {	# ROOT
	# /dev is mounted over; device nodes are all that it can hold.
	extract "$1" --anchored --exclude='./dev/*' --exclude='dev/*'
}

unpack_layers() {	# KIND, ROOT
	local from=$1:$work/archive

	need skopeo skopeo
	need umoci umoci
	if [[ $1 == oci-archive ]]; then
		# skopeo would unpack it as well, but only as root.
		extract "$work/layout"
		[[ -z $(find -P "$work/layout" ! -type f ! -type d) ]] ||
			die "the archive is refused: it has links or devices"
		from=oci:$work/layout
	fi
	skopeo --tmpdir "$work" --insecure-policy copy --quiet "$from" \
		"oci:$work/oci:image" >"$work/errors" 2>&1 ||
		die "skopeo cannot read the $1: $(tail -n 1 "$work/errors")"
	umoci raw unpack --rootless --image "$work/oci:image" "$2" \
		>"$work/errors" 2>&1 ||
		die "umoci cannot unpack the $1: $(tail -n 1 "$work/errors")"
	chmod -R u+rwX -- "$2"
}

# Whether a link in folder FROM leads above the root, read as text.
climbs_out() {	# FROM, TARGET
	local path=$2 part depth=0
	local -a parts

	[[ $path == /* ]] || path=$1/$path
	mapfile -t -d / parts < <(printf '%s' "$path")
	for part in "${parts[@]}"; do
		case $part in
		'' | .) ;;
		..)
			((depth > 0)) || return 0
			depth=$((depth - 1))
			;;
		*) depth=$((depth + 1)) ;;
		esac
	done
	return 1
}

check_tree() {	# ROOT
	local path target odd

	odd=$(find -P "$1" ! -type f ! -type d ! -type l -printf '/%P' -quit)
	[[ -z $odd ]] ||
		die "the archive is refused: $odd is a device, a FIFO or a socket"
	[[ -n $(find -P "$1" -type f -print -quit) ]] ||
		die "the archive is refused: it holds no file"
	while IFS= read -r -d '' path && IFS= read -r -d '' target; do
		! climbs_out "$(dirname "/$path")" "$target" ||
			die "the archive is refused: the link /$path leads to" \
				"$target, out of the root file system"
	done < <(find -P "$1" -type l -printf '%P\0%l\0')
}

cmd_import() {
	local name file kind

	(($# == 2)) || usage_error "import needs the name of an image and a file"
	name=$1 file=$2
	check_name "$name"
	[[ -f $file && -r $file ]] || die "cannot read $file"
	file=$(readlink -f "$file")
	begin_work
	archive_names "$file"
	ln -s -- "$file" "$work/archive"
	kind=$(archive_kind)
	say "$name" "unpacking (${kind/rootfs/tar of a root file system})"
	case $kind in
	rootfs) unpack_rootfs "$work/root" ;;
	*) unpack_layers "$kind" "$work/root" ;;
	esac
	check_tree "$work/root"
	settle "$work/root"
	publish "$name" "$work/root"
}
