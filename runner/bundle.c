/* SPDX-License-Identifier: Apache-2.0 */
#include "runner/bundle.h"

/* What isobox-init needs to prepare the sandbox, see guest/boot.h; it drops most
 * of them before the job arrives, and the program gets none. */
#define INIT_CAPS                                                     \
	"[\"CAP_CHOWN\",\"CAP_KILL\",\"CAP_SETFCAP\",\"CAP_SETGID\"," \
	"\"CAP_SETUID\",\"CAP_SYS_ADMIN\",\"CAP_SYS_RESOURCE\"]"

static void put_process(struct buf *out)
{
	buf_puts(out,
	    "\"process\":{\"terminal\":false,"
	    "\"user\":{\"uid\":0,\"gid\":0},"
	    "\"args\":[\"" BUNDLE_INIT "\"],"
	    "\"env\":[\"PATH=/usr/bin:/bin\"],"
	    "\"cwd\":\"/\",\"noNewPrivileges\":true,"
	    "\"capabilities\":{\"bounding\":" INIT_CAPS
	    ",\"effective\":" INIT_CAPS ",\"permitted\":" INIT_CAPS "}},");
}

/* tmpfs lives in the sentry's memory: the leaf's memory limit counts it. */
static void put_tmpfs(struct buf *out, const char *where, bool exec)
{
	buf_printf(out,
	    ",{\"destination\":\"%s\",\"type\":\"tmpfs\",\"source\":\"tmpfs\","
	    "\"options\":[\"mode=1777\",\"nosuid\",\"nodev\"%s]}",
	    where, exec ? "" : ",\"noexec\"");
}

/* A directory of the host. What the file API writes while a program runs is seen
 * by it, and what the program writes is in the host's page cache at once: that is
 * runsc's --file-access-mounts=shared, the default (measured; "exclusive" would
 * cache in the sentry). */
static void put_bind(struct buf *out, const char *where)
{
	buf_printf(out,
	    ",{\"destination\":\"%s\",\"type\":\"bind\",\"source\":\"%s\","
	    "\"options\":[\"bind\",\"rw\",\"nosuid\",\"nodev\"]}",
	    where, where);
}

void bundle_config(const struct bundle_spec *spec, struct buf *out)
{
	buf_puts(out, "{\"ociVersion\":\"1.0.2\",");
	put_process(out);
	buf_puts(out,
	    "\"root\":{\"path\":\"" BUNDLE_ROOTFS "\",\"readonly\":true},"
	    "\"hostname\":\"isobox\",\"mounts\":["
	    "{\"destination\":\"/proc\",\"type\":\"proc\",\"source\":\"proc\","
	    "\"options\":[\"nosuid\",\"nodev\",\"noexec\"]}");
	put_tmpfs(out, "/tmp", spec->scratch_exec);
	put_tmpfs(out, "/box", spec->scratch_exec);
	put_tmpfs(out, "/dev/shm", false);
	if (spec->workspace)
		put_bind(out, BUNDLE_WORKSPACE);
	if (spec->memory)
		put_bind(out, BUNDLE_MEMORY);
	buf_puts(out,
	    "],\"linux\":{\"namespaces\":[{\"type\":\"pid\"},"
	    "{\"type\":\"mount\"},{\"type\":\"ipc\"},{\"type\":\"uts\"},"
	    /* The one that runsc is started in; without a path it would make
	     * another. */
	    "{\"type\":\"network\",\"path\":\"/proc/self/ns/net\"}]}}");
}
