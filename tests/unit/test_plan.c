/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From a job and a runtime to what the guest is told, and the OCI bundle.
 *
 * LINK: runner/plan.o runner/bundle.o runner/runsc.o
 */
#include "tests/unit/unit.h"

#include <json-c/json.h>
#include <string.h>

#include "lib/kproto.h"
#include "lib/proto.h"
#include "runner/bundle.h"
#include "runner/plan.h"
#include "runner/runsc.h"

static struct blob blob(const char *s)
{
	return (struct blob){.data = (const uint8_t *)s, .len = strlen(s)};
}

static void assert_blob(struct blob b, const char *expected)
{
	assert_int_equal(b.len, strlen(expected));
	assert_memory_equal(b.data, expected, b.len);
}

/* Plans and decodes what the guest would decode. */
static void plan(const struct runtime *rt, const struct job *job,
    struct buf *frame, struct guest_job *ret)
{
	const uint8_t *payload;
	enum proto_type type;
	struct err e;
	size_t len;

	assert_int_equal(plan_guest_job(rt, job, frame, &e), 0);
	assert_int_equal(
	    proto_next(frame->data, frame->len, &type, &payload, &len),
	    frame->len);
	assert_int_equal(type, PROTO_GUEST_JOB);
	assert_int_equal(guest_job_decode(payload, len, ret, &e), 0);
}

static void test_source_and_args(void **state)
{
	char *compile[] = {
	    (char[]){"/cc"}, (char[]){"--in={source}"}, (char[]){"-o"}, NULL};
	char *run[] = {(char[]){"/run"}, (char[]){"{source}"}, NULL};
	const struct runtime rt = {.compile = compile, .run = run};
	struct job_file files[] = {
	    {blob("a.c"), blob("1")}, {blob("d/{source}.c"), blob("2")}};
	struct blob args[] = {blob("{source}"), blob(""), blob("a b'\"")};
	struct job job = {.files = files,
	    .file_count = 2,
	    .entry = 1,
	    .args = args,
	    .arg_count = 3,
	    .limits = {.pids = 7, .output_bytes = 2048}};
	cleanup_buf struct buf frame = {0};
	struct guest_job g;

	(void)state;
	plan(&rt, &job, &frame, &g);
	assert_int_equal(g.compile_count, 3);
	assert_blob(g.compile[1], "--in=d/{source}.c");
	assert_int_equal(g.run_count, 5);
	assert_blob(g.run[0], "/run");
	assert_blob(g.run[1], "d/{source}.c");
	/* A client's argument is never a template. */
	assert_blob(g.run[2], "{source}");
	assert_blob(g.run[3], "");
	assert_blob(g.run[4], "a b'\"");
	assert_int_equal(g.pids, 7);
	assert_int_equal(g.output_bytes, 2048);
	assert_blob(g.cwd, "/box");
	guest_job_done(&g);
}

static void test_source_is_no_option(void **state)
{
	char *run[] = {(char[]){"/run"}, (char[]){"{source}"}, NULL};
	const struct runtime rt = {.run = run};
	struct job_file files[] = {{blob("-c"), blob("")}};
	struct job job = {.files = files, .file_count = 1};
	cleanup_buf struct buf frame = {0};
	struct guest_job g;

	(void)state;
	job.limits.pids = 1;
	job.limits.output_bytes = LIMIT_OUTPUT_MIN;
	plan(&rt, &job, &frame, &g);
	assert_blob(g.run[1], "./-c");
	guest_job_done(&g);
}

static void test_warm_compiler(void **state)
{
	char *run[] = {(char[]){"/tmp/main"}, NULL};
	char *compile[] = {(char[]){"cc"}, (char[]){"{source}"}, NULL};
	const struct runtime rt = {.run = run,
	    .compile = compile,
	    .warm = WARM_COMPILER,
	    .source_file = (char[]){"main.x"}};
	cleanup_buf struct buf frame = {0};
	const uint8_t *payload;
	enum proto_type type;
	struct guest_warm w;
	struct err e;
	size_t len;

	(void)state;
	assert_int_equal(plan_guest_warm(&rt, NULL, false, &frame, &e), 0);
	assert_int_equal(
	    proto_next(frame.data, frame.len, &type, &payload, &len),
	    frame.len);
	assert_int_equal(guest_warm_decode(payload, len, &w, &e), 0);
	assert_true(w.compiles);
	assert_int_equal(w.run_count, 2);
	assert_blob(w.run[1], "main.x");
	guest_warm_done(&w);
}

static void test_warm(void **state)
{
	char *run[] = {(char[]){"/run"}, (char[]){"{source}"}, NULL};
	char *env[] = {(char[]){"HOME=/box"}, NULL};
	char *preload[] = {(char[]){"a.b"}, NULL};
	char *many[LIMIT_PRELOAD + 2] = {0};
	const struct runtime rt = {
	    .run = run, .env = env, .source_file = (char[]){"main.x"}};
	struct job_file files[] = {{blob("main.x"), blob("")}};
	struct job job = {.files = files,
	    .file_count = 1,
	    .limits = {.pids = 1, .output_bytes = LIMIT_OUTPUT_MIN}};
	cleanup_buf struct buf frame = {0}, job_frame = {0};
	const uint8_t *payload;
	enum proto_type type;
	struct guest_warm w;
	struct guest_job g;
	struct err e;
	size_t len;

	(void)state;
	assert_int_equal(plan_guest_warm(&rt, preload, false, &frame, &e), 0);
	assert_int_equal(
	    proto_next(frame.data, frame.len, &type, &payload, &len),
	    frame.len);
	assert_int_equal(type, PROTO_GUEST_WARM);
	assert_int_equal(guest_warm_decode(payload, len, &w, &e), 0);
	assert_blob(w.entry, "main.x");
	assert_int_equal(w.preload_count, 1);
	assert_blob(w.preload[0], "a.b");
	/* Otherwise the same as a job's, or init would not take it for one. */
	plan(&rt, &job, &job_frame, &g);
	assert_int_equal(w.run_count, g.run_count);
	assert_blob(w.run[1], "main.x");
	assert_int_equal(w.env_count, g.env_count);
	for (size_t i = 0; i < w.env_count; i++)
		assert_int_equal(w.env[i].len, g.env[i].len);
	assert_int_equal(w.cwd.len, g.cwd.len);
	guest_warm_done(&w);
	guest_job_done(&g);
	buf_clear(&frame);
	assert_int_equal(plan_guest_warm(&rt, NULL, false, &frame, &e), 0);
	for (size_t i = 0; i <= LIMIT_PRELOAD; i++)
		many[i] = preload[0];
	assert_true(plan_guest_warm(&rt, many, false, &frame, &e) < 0);
}

/* A session's step works in its workspace; its source is not there. */
static void test_step(void **state)
{
	char *compile[] = {(char[]){"/cc"}, (char[]){"{source}"}, NULL};
	char *run[] = {(char[]){"/run"}, (char[]){"--x={source}"}, NULL};
	const struct runtime rt = {.compile = compile, .run = run};
	struct job_file files[] = {{blob("-c"), blob("")}};
	struct job job = {
	    .files = files, .file_count = 1, .session = blob("abc")};
	cleanup_buf struct buf frame = {0};
	struct guest_job g;

	(void)state;
	job.limits.pids = 1;
	job.limits.output_bytes = LIMIT_OUTPUT_MIN;
	plan(&rt, &job, &frame, &g);
	assert_blob(g.cwd, "/workspace");
	assert_blob(g.compile[1], "./-c");
	assert_blob(g.run[1], "--x=/box/-c");
	guest_job_done(&g);
}

static void test_env_overrides(void **state)
{
	char *run[] = {(char[]){"/run"}, NULL};
	char *env[] = {(char[]){"HOME=/box"}, (char[]){"HOMER=x"}, NULL};
	const struct runtime rt = {.run = run, .env = env};
	struct job_file files[] = {{blob("a"), blob("")}};
	struct job job = {.files = files, .file_count = 1};
	cleanup_buf struct buf frame = {0};
	struct guest_job g;
	int homes = 0;

	(void)state;
	job.limits.pids = 1;
	job.limits.output_bytes = LIMIT_OUTPUT_MIN;
	plan(&rt, &job, &frame, &g);
	for (size_t i = 0; i < g.env_count; i++)
		if (g.env[i].len > 5 && memcmp(g.env[i].data, "HOME=", 5) == 0)
			homes++;
	assert_int_equal(homes, 1);
	assert_blob(g.env[g.env_count - 2], "HOME=/box");
	assert_blob(g.env[g.env_count - 1], "HOMER=x");
	guest_job_done(&g);
}

/* The options of a mount of the bundle, as one string. */
static const char *mount_options(struct json_object *config, const char *where)
{
	struct json_object *mounts, *m, *dest, *options;

	assert_true(json_object_object_get_ex(config, "mounts", &mounts));
	for (size_t i = 0; i < json_object_array_length(mounts); i++) {
		m = json_object_array_get_idx(mounts, i);
		assert_true(json_object_object_get_ex(m, "destination", &dest));
		if (strcmp(json_object_get_string(dest), where) != 0)
			continue;
		assert_true(json_object_object_get_ex(m, "options", &options));
		return json_object_get_string(options);
	}
	return NULL;
}

static void check_bundle(bool exec, bool workspace, bool memory)
{
	const struct bundle_spec spec = {
	    .scratch_exec = exec, .workspace = workspace, .memory = memory};
	cleanup_buf struct buf text = {0};
	struct json_object *config, *root, *readonly;

	bundle_config(&spec, &text);
	buf_putc(&text, '\0');
	config = json_tokener_parse((const char *)text.data);
	assert_non_null(config);
	assert_true(json_object_object_get_ex(config, "root", &root));
	assert_true(json_object_object_get_ex(root, "readonly", &readonly));
	assert_true(json_object_get_boolean(readonly));
	assert_int_equal(
	    strstr(mount_options(config, "/box"), "noexec") == NULL, exec);
	assert_int_equal(
	    strstr(mount_options(config, "/tmp"), "noexec") == NULL, exec);
	assert_non_null(strstr(mount_options(config, "/dev/shm"), "noexec"));
	assert_int_equal(
	    mount_options(config, "/workspace") != NULL, workspace);
	assert_int_equal(mount_options(config, "/memory") != NULL, memory);
	if (workspace)
		assert_non_null(
		    strstr(mount_options(config, "/workspace"), "nosuid"));
	json_object_put(config);
}

static void test_bundle(void **state)
{
	(void)state;
	check_bundle(false, false, false);
	check_bundle(true, true, false);
	check_bundle(true, true, true);
}

static void test_runsc_argv(void **state)
{
	const char *argv[RUNSC_ARGV_MAX];
	char flag[64];
	int n = 0, network = 0, platform = 0;

	(void)state;
	runsc_argv(RUNSC_RUN, "systrap", false, flag, argv);
	while (argv[n] != NULL) {
		network += strcmp(argv[n], "--network=none") == 0;
		platform += strcmp(argv[n], "--platform=systrap") == 0;
		n++;
	}
	assert_int_equal(network, 1);
	assert_int_equal(platform, 1);
	assert_string_equal(argv[n - 1], RUNSC_CONTAINER);
}

static int find_word(const char *const *argv, const char *word)
{
	for (int n = 0; argv[n] != NULL; n++)
		if (strcmp(argv[n], word) == 0)
			return n;
	return -1;
}

/* What is restored and what is saved is told with the flags of run, or gVisor
 * refuses it. */
static void test_runsc_verbs(void **state)
{
	static const struct {
		enum runsc_verb verb;
		const char *word;
	} verbs[] = {{RUNSC_RESTORE, "restore"}, {RUNSC_PAUSE, "pause"},
	    {RUNSC_RESUME, "resume"}, {RUNSC_SAVE, "checkpoint"},
	    {RUNSC_SAVE_SMALL, "checkpoint"}};
	const char *run[RUNSC_ARGV_MAX], *argv[RUNSC_ARGV_MAX];
	char flag[64], other[64];
	int flags;

	(void)state;
	runsc_argv(RUNSC_RUN, "ptrace", false, flag, run);
	flags = find_word(run, "run");
	assert_true(flags > 0);
	for (size_t i = 0; i < ARRAY_LEN(verbs); i++) {
		bool saves = strcmp(verbs[i].word, "checkpoint") == 0;

		runsc_argv(verbs[i].verb, "ptrace", false, other, argv);
		assert_int_equal(find_word(argv, verbs[i].word), flags);
		for (int n = 0; n < flags; n++)
			assert_string_equal(argv[n], run[n]);
		assert_int_equal(
		    find_word(argv, "--leave-running") > flags, saves);
		assert_int_equal(
		    find_word(argv, "--image-path=/proc/self/fd/3") > flags,
		    saves);
	}
}

/* The payload of the one frame in b, which has this type. */
static const uint8_t *only_frame(
    const struct buf *b, enum proto_type want, size_t *ret_len)
{
	const uint8_t *payload;
	enum proto_type type;

	assert_int_equal(
	    proto_next(b->data, b->len, &type, &payload, ret_len), b->len);
	assert_int_equal(type, want);
	return payload;
}

static void assert_env(const struct guest_kernel *k, const char *want)
{
	for (size_t i = 0; i < k->env_count; i++)
		if (k->env[i].len == strlen(want) &&
		    memcmp(k->env[i].data, want, k->env[i].len) == 0)
			return;
	fail_msg("no %s", want);
}

static void test_kernel(void **state)
{
	char *run[] = {
	    (char[]){"/usr/bin/python3"}, (char[]){"{source}"}, NULL};
	char *env[] = {(char[]){"A=b"}, (char[]){"HOME=/elsewhere"}, NULL};
	struct runtime rt = {
	    .name = (char[]){"x"}, .run = run, .env = env, .kernel = true};
	cleanup_buf struct buf frame = {0};
	struct guest_kernel k;
	struct err e;
	size_t len;
	const uint8_t *payload;

	(void)state;
	assert_int_equal(plan_guest_kernel(&rt, 9, &frame, &e), 0);
	payload = only_frame(&frame, PROTO_GUEST_KERNEL, &len);
	assert_int_equal(guest_kernel_decode(payload, len, &k, &e), 0);
	assert_blob(k.language, "python");
	assert_blob(k.cwd, "/workspace");
	assert_int_equal(k.run_count, 2);
	assert_blob(k.run[0], "/usr/bin/python3");
	assert_blob(k.run[1], "-");
	assert_int_equal(k.pids, 9);
	assert_env(&k, "A=b");
	assert_env(&k, "HOME=/elsewhere");
	assert_env(&k, "PYTHONUSERBASE=/workspace/.local");
	guest_kernel_done(&k);
	buf_clear(&frame);
	run[0] = (char[]){"/usr/local/bin/node"};
	assert_int_equal(plan_guest_kernel(&rt, 9, &frame, &e), 0);
	rt.kernel = false;
	assert_true(plan_guest_kernel(&rt, 9, &frame, &e) < 0);
	assert_int_equal(e.kind, ERR_KERNEL_UNSUPPORTED);
	rt.kernel = true;
	run[0] = (char[]){"/usr/bin/ruby"};
	assert_true(plan_guest_kernel(&rt, 9, &frame, &e) < 0);
	assert_int_equal(e.kind, ERR_KERNEL_UNSUPPORTED);
}

static void test_kernel_step(void **state)
{
	struct job_file files[] = {
	    {blob("main.py"), blob("1")}, {blob("m.py"), blob("2")}};
	const struct job job = {.files = files,
	    .file_count = 2,
	    .entry = 1,
	    .stdin_data = blob("in"),
	    .display = true,
	    .limits = {.output_bytes = 2048}};
	cleanup_buf struct buf frame = {0};
	struct guest_step s;
	struct err e;
	size_t len;
	const uint8_t *payload;

	(void)state;
	assert_int_equal(plan_guest_step(&job, 7, &frame, &e), 0);
	payload = only_frame(&frame, PROTO_GUEST_STEP, &len);
	assert_int_equal(guest_step_decode(payload, len, &s, &e), 0);
	assert_int_equal(s.number, 7);
	assert_true(s.display);
	assert_int_equal(s.output_bytes, 2048);
	assert_int_equal(s.entry, 1);
	assert_int_equal(s.file_count, 2);
	assert_blob(s.stdin_data, "in");
	guest_step_done(&s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_kernel),
	    cmocka_unit_test(test_kernel_step),
	    cmocka_unit_test(test_source_and_args),
	    cmocka_unit_test(test_source_is_no_option),
	    cmocka_unit_test(test_warm),
	    cmocka_unit_test(test_warm_compiler),
	    cmocka_unit_test(test_step),
	    cmocka_unit_test(test_env_overrides),
	    cmocka_unit_test(test_bundle),
	    cmocka_unit_test(test_runsc_argv),
	    cmocka_unit_test(test_runsc_verbs),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
