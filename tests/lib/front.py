# SPDX-License-Identifier: Apache-2.0
"""The front servers, started with what examples/ shows: its files, with the
paths and the port changed as their comments tell an operator to."""

import os

REPO = os.path.dirname(os.path.dirname(os.path.dirname(
    os.path.abspath(__file__))))
EXAMPLES = os.path.join(REPO, "examples")

# kind: files of examples/, the first is the main one; and the command.
FRONTS = {
    "caddy": (["caddy/Caddyfile"],
              ["caddy", "run", "--adapter", "caddyfile", "--config", "{}"]),
    "apache": (["apache/apache2.conf", "apache/isobox.conf"],
               ["apache2", "-f", "{}", "-DFOREGROUND"]),
    "lighttpd": (["lighttpd/lighttpd.conf", "lighttpd/isobox.conf"],
                 ["lighttpd", "-D", "-f", "{}"]),
    "nginx": (["nginx/nginx.conf", "nginx/isobox.conf"],
              ["nginx", "-e", "stderr", "-c", "{}"]),
    "cgi": (["cgi/apache2.conf", "cgi/isobox.cgi"],
            ["apache2", "-f", "{}", "-DFOREGROUND"]),
    "cgi-lighttpd": (["cgi/lighttpd.conf", "cgi/isobox.cgi"],
                     ["lighttpd", "-D", "-f", "{}"]),
}
KINDS = list(FRONTS)


def prepare(kind, folder, port, socket, config, program, playground):
    """Writes the configuration into folder; the command that starts the
    server. socket: of isobox.fcgi; config, program: for CGI."""
    files, command = FRONTS[kind]
    changes = (
        ("/run/isobox-front", folder),
        ("/run/isobox-web/fcgi.sock", socket),
        ("/usr/local/share/isobox/playground", playground),
        ("/usr/local/lib/cgi-bin", folder),
        ("/etc/isobox/isobox.yaml", config),
        ("/usr/local/bin/isobox.fcgi", program),
        ("8090", str(port)),
    )
    for name in files:
        with open(os.path.join(EXAMPLES, name)) as f:
            text = f.read()
        for old, new in changes:
            text = text.replace(old, new)
        path = os.path.join(folder, os.path.basename(name))
        with open(path, "w") as f:
            f.write(text)
        os.chmod(path, 0o755 if name.endswith(".cgi") else 0o644)
    main = os.path.join(folder, os.path.basename(files[0]))
    return [word.replace("{}", main) for word in command]
