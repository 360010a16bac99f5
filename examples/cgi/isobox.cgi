#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# isobox.fcgi as a plain CGI program: one process a request, nothing to keep
# running but isobox-runner. For web servers without FastCGI, and for shared
# hosting that offers cgi-bin only.
#
# Change:  the two paths. The configuration must name the runner's socket and a
#          state directory that the web server's user may write.
# Install: where the server looks for CGI programs, mode 755. The user that it
#          runs as must be among the runner's allowed_users.

export ISOBOX_CONFIG=/etc/isobox/isobox.yaml
exec /usr/local/bin/isobox.fcgi
