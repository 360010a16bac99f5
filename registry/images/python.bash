# shellcheck shell=bash disable=SC2034,SC2154
# SPDX-License-Identifier: Apache-2.0
#
# What the recipes of the Python images share.

# Python's packages bring no .pyc files: their installation compiles them, one
# process a package.  Without py3compile it does not, and finish_python does all.
python_exclude=(/usr/bin/py3compile '/usr/lib/python3*/EXTERNALLY-MANAGED')

finish_python() {
	install -m 644 "$recipes/python.pth" \
		"$root/usr/lib/python3/dist-packages/isobox.pth"
	# Debian's hook for crash reports, looked for at each start.
	rm -f -- "$root"/usr/lib/python3*/sitecustomize.py
	# Of other Pythons that Debian is about to take or leave.
	find "$root/usr/lib" -name '*.cpython-*.so' \
		! -name "*.cpython-${version/./}-*" -delete
	# The root is read-only, so what is not compiled now is so in every run.
	# "unchecked" saves a look at each source, and outlives a copy of the
	# image that does not keep its times.  Some files are no valid Python,
	# being templates or tests.
	in_root python3 -m compileall -q -f -j 0 \
		--invalidation-mode unchecked-hash /usr/lib >/dev/null 2>&1 || :
}

reports() {
	in_root python3 -c 'import sys; print("%d.%d" % sys.version_info[:2])'
}

# The modules load, from compiled files, without a word on stderr.
check_modules() {
	local said

	said=$(in_root python3 -X pycache_prefix= -c '
import importlib, os, sys
for name in sys.argv[1:]:
    module = importlib.import_module(name)
    cached = module.__spec__.cached
    if cached and not os.path.exists(cached):
        print(name, "is not compiled")
' "$@" 2>&1) || die "$name: Python says: $said"
	expect "importing $*" "" "$said"
}
