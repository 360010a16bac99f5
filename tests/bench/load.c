/* SPDX-License-Identifier: Apache-2.0 */
/*
 * load: a client that costs nothing beside what it measures.
 *
 *	load [-c CLIENTS] [-n COUNT | -t SECONDS] [-b FILE] [-x TEXT]
 *	     [-m METHOD] [-H HEADER] PORT TARGET
 *
 * Each client is a thread with one connection to 127.0.0.1:PORT that is kept
 * alive. All make one request for /healthz, which is not counted; then they
 * begin together, each asking for TARGET again as soon as it has its answer,
 * until COUNT requests were made by all (default: one by each) or SECONDS have
 * passed. FILE: the body, POSTed as JSON. A line for each request:
 *
 *	BEGUN TOOK STATUS RIGHT WARM QUEUE BOOT RUN
 *
 * BEGUN since the start of the program and TOOK, from the first byte sent to the
 * last one received, in microseconds; STATUS 0 when there was no HTTP answer;
 * RIGHT 1 when it was 2xx and its body has TEXT in it; the rest from the header
 * Server-Timing, in microseconds: WARM 1 or 0, -1 where there is no such header.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define CLIENTS_MAX 256
#define ANSWER_MAX ((size_t)1 << 20)
#define TIMEOUT_S 120

struct record {
	int64_t begun_us;
	int64_t took_us;
	int status;
	bool right;
	int warm;
	int64_t phase_us[3];
};

struct plan {
	uint16_t port;
	const char *target;
	const char *method;
	const char *header; /* a line of its own, or NULL */
	const char *expected;
	char *request;
	size_t request_len;
	int64_t origin_us;
	int64_t end_us; /* or 0 */
	atomic_long left;
	pthread_barrier_t start;
};

struct client {
	struct plan *plan;
	int fd;
	char *answer; /* ANSWER_MAX + 1 */
	struct record *records;
	size_t count;
	size_t room;
};

static void die(const char *what)
{
	(void)fprintf(stderr, "load: %s: %s\n", what, strerror(errno));
	exit(EXIT_FAILURE);
}

static int64_t now_us(void)
{
	struct timespec t;

	(void)clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

static int connect_to(uint16_t port)
{
	const struct sockaddr_in a = {.sin_family = AF_INET,
	    .sin_port = htons(port),
	    .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	const struct timeval patience = {.tv_sec = TIMEOUT_S};
	const int on = 1;
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (fd < 0)
		die("socket");
	(void)setsockopt(
	    fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
	(void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	if (connect(fd, (const struct sockaddr *)&a, sizeof(a)) == 0)
		return fd;
	(void)close(fd);
	return -1;
}

static bool send_all(int fd, const char *data, size_t len)
{
	while (len > 0) {
		ssize_t n = send(fd, data, len, MSG_NOSIGNAL);

		if (n <= 0)
			return false;
		data += n;
		len -= (size_t)n;
	}
	return true;
}

/* The value of a header in a head that ends with NUL; or NULL. */
static const char *find_header(const char *head, const char *name)
{
	const size_t len = strlen(name);

	while ((head = strstr(head, "\r\n")) != NULL) {
		head += 2;
		if (strncasecmp(head, name, len) == 0 && head[len] == ':')
			return head + len + 1 + strspn(head + len + 1, " ");
	}
	return NULL;
}

/* Whether the last chunk of a body is there; the server is ours, so what looks
 * like the end is the end. */
static bool chunks_complete(const char *answer, size_t len)
{
	return len >= 5 && memcmp(answer + len - 5, "0\r\n\r\n", 5) == 0;
}

/*
 * Receives one answer into c->answer, its head made a string of its own by a NUL
 * in place of the last newline. The body and whether the connection stays open;
 * NULL when what came is no answer.
 */
static const char *receive(struct client *c, bool *ret_open)
{
	size_t len = 0, head_len = 0, whole = 0;
	bool chunked = false;

	while (len < ANSWER_MAX) {
		ssize_t n = recv(c->fd, c->answer + len, ANSWER_MAX - len, 0);
		const char *value;

		if (n < 0)
			return NULL;
		*ret_open = n > 0;
		if (n == 0)
			return head_len > 0 && whole == 0 && !chunked
				   ? c->answer + head_len
				   : NULL;
		len += (size_t)n;
		c->answer[len] = '\0';
		if (head_len == 0) {
			char *end = strstr(c->answer, "\r\n\r\n");

			if (end == NULL)
				continue;
			end[2] = '\0';
			head_len = (size_t)(end - c->answer) + 4;
			value = find_header(c->answer, "Content-Length");
			if (value != NULL)
				whole = head_len + strtoul(value, NULL, 10);
			value = find_header(c->answer, "Transfer-Encoding");
			chunked = value != NULL;
			value = find_header(c->answer, "Connection");
			*ret_open = value == NULL ||
				    strncasecmp(value, "close", 5) != 0;
		}
		if (whole > 0 ? len >= whole
			      : chunked && chunks_complete(c->answer + head_len,
					       len - head_len))
			return c->answer + head_len;
	}
	return NULL;
}

/* "queue;dur=0.012, boot;dur=1.234;desc="warm", run;dur=3.210" */
static void read_timing(const char *head, struct record *r)
{
	static const char *const phases[3] = {"queue", "boot", "run"};
	const char *value = find_header(head, "Server-Timing");
	char line[512];

	r->warm = -1;
	if (value == NULL)
		return;
	(void)snprintf(
	    line, sizeof(line), "%.*s", (int)strcspn(value, "\r"), value);
	r->warm = strstr(line, "\"warm\"") != NULL;
	for (int i = 0; i < 3; i++) {
		const char *p = strstr(line, phases[i]);

		p = p != NULL ? strstr(p, "dur=") : NULL;
		if (p != NULL)
			r->phase_us[i] = (int64_t)(strtod(p + 4, NULL) * 1000);
	}
}

/* One request and its answer. A connection that the server had closed is made
 * anew, which is part of the time. */
static void exchange(struct client *c, const char *request, size_t len,
    const char *expected, struct record *r)
{
	const char *body = NULL;
	bool open = false;

	*r = (struct record){.begun_us = now_us()};
	if (c->fd < 0)
		c->fd = connect_to(c->plan->port);
	if (c->fd >= 0 && send_all(c->fd, request, len))
		body = receive(c, &open);
	r->took_us = now_us() - r->begun_us;
	if (body != NULL &&
	    sscanf(c->answer, "HTTP/1.%*d %d", &r->status) == 1) {
		r->right =
		    r->status / 100 == 2 && strstr(body, expected) != NULL;
		read_timing(c->answer, r);
	}
	r->begun_us -= c->plan->origin_us;
	if (c->fd >= 0 && (body == NULL || !open)) {
		(void)close(c->fd);
		c->fd = -1;
	}
}

static struct record *next_record(struct client *c)
{
	if (c->count == c->room) {
		c->room = c->room * 2 + 16;
		c->records = realloc(c->records, c->room * sizeof(*c->records));
		if (c->records == NULL)
			die("memory");
	}
	return &c->records[c->count++];
}

static void *client_main(void *arg)
{
	static const char hello[] = "GET /healthz HTTP/1.1\r\n"
				    "Host: 127.0.0.1\r\n\r\n";
	struct client *c = arg;
	struct plan *p = c->plan;
	struct record r;

	exchange(c, hello, sizeof(hello) - 1, "", &r);
	(void)pthread_barrier_wait(&p->start);
	(void)pthread_barrier_wait(&p->start); /* end_us is set */
	while (p->end_us > 0 ? now_us() < p->end_us
			     : atomic_fetch_sub(&p->left, 1) > 0)
		exchange(
		    c, p->request, p->request_len, p->expected, next_record(c));
	return NULL;
}

static char *read_file(const char *name, size_t *ret_len)
{
	FILE *f = fopen(name, "rb");
	char *data = malloc(ANSWER_MAX);

	if (f == NULL || data == NULL)
		die(name);
	*ret_len = fread(data, 1, ANSWER_MAX, f);
	if (ferror(f) || fclose(f) != 0)
		die(name);
	return data;
}

/* The head, and room for the body behind it. */
static size_t make_head(struct plan *p, size_t body_len)
{
	char length[64] = "";
	const char *header = p->header != NULL ? p->header : "";
	int n;

	if (body_len > 0)
		(void)snprintf(length, sizeof(length),
		    "Content-Type: application/json\r\n"
		    "Content-Length: %zu\r\n",
		    body_len);
	n = asprintf(&p->request,
	    "%s %s HTTP/1.1\r\nHost: 127.0.0.1\r\n%s%s%s\r\n%*s", p->method,
	    p->target, length, header, *header != '\0' ? "\r\n" : "",
	    (int)body_len, "");
	if (n < 0)
		die("memory");
	return (size_t)n - body_len;
}

static void make_request(struct plan *p, const char *body_file)
{
	size_t body_len = 0;
	char *body = body_file != NULL ? read_file(body_file, &body_len) : NULL;
	size_t head_len = make_head(p, body_len);

	if (body != NULL)
		memcpy(p->request + head_len, body, body_len);
	p->request_len = head_len + body_len;
	free(body);
}

static void run(struct plan *p, unsigned clients, int64_t seconds)
{
	struct client *c = calloc(clients, sizeof(*c));
	pthread_t *threads = calloc(clients, sizeof(*threads));

	if (c == NULL || threads == NULL ||
	    pthread_barrier_init(&p->start, NULL, clients + 1) != 0)
		die("memory");
	p->origin_us = now_us();
	for (unsigned i = 0; i < clients; i++) {
		c[i] = (struct client){
		    .plan = p, .fd = -1, .answer = malloc(ANSWER_MAX + 1)};
		if (c[i].answer == NULL ||
		    pthread_create(&threads[i], NULL, client_main, &c[i]) != 0)
			die("thread");
	}
	(void)pthread_barrier_wait(&p->start);
	p->end_us = seconds > 0 ? now_us() + seconds * 1000000 : 0;
	(void)pthread_barrier_wait(&p->start);
	for (unsigned i = 0; i < clients; i++) {
		(void)pthread_join(threads[i], NULL);
		for (size_t n = 0; n < c[i].count; n++) {
			const struct record *r = &c[i].records[n];

			(void)printf("%" PRId64 " %" PRId64 " %d %d %d %" PRId64
				     " %" PRId64 " %" PRId64 "\n",
			    r->begun_us, r->took_us, r->status, r->right,
			    r->warm, r->phase_us[0], r->phase_us[1],
			    r->phase_us[2]);
		}
		if (c[i].fd >= 0)
			(void)close(c[i].fd);
		free(c[i].answer);
		free(c[i].records);
	}
	(void)pthread_barrier_destroy(&p->start);
	free(threads);
	free(c);
}

static long number(const char *text, long max)
{
	char *end;
	long n = strtol(text, &end, 10);

	if (*end != '\0' || end == text || n < 1 || n > max) {
		(void)fprintf(
		    stderr, "load: %s: must be 1 to %ld\n", text, max);
		exit(2);
	}
	return n;
}

int main(int argc, char **argv)
{
	struct plan p = {.method = "GET", .expected = ""};
	const char *body = NULL, *method = NULL;
	long clients = 1, count = 0, seconds = 0;
	int option;

	while ((option = getopt(argc, argv, "c:n:t:b:x:m:H:")) != -1) {
		switch (option) {
		case 'c':
			clients = number(optarg, CLIENTS_MAX);
			break;
		case 'n':
			count = number(optarg, 1000000);
			break;
		case 't':
			seconds = number(optarg, 3600);
			break;
		case 'b':
			body = optarg;
			break;
		case 'x':
			p.expected = optarg;
			break;
		case 'm':
			method = optarg;
			break;
		case 'H':
			p.header = optarg;
			break;
		default:
			return 2;
		}
	}
	if (argc - optind != 2) {
		(void)fprintf(stderr, "usage: load [-c CLIENTS] [-n COUNT | "
				      "-t SECONDS] [-b FILE] [-x TEXT] "
				      "[-m METHOD] [-H HEADER] PORT TARGET\n");
		return 2;
	}
	p.port = (uint16_t)number(argv[optind], 65535);
	p.target = argv[optind + 1];
	p.method = method != NULL ? method : body != NULL ? "POST" : "GET";
	atomic_init(&p.left, count > 0 ? count : clients);
	make_request(&p, body);
	run(&p, (unsigned)clients, seconds);
	free(p.request);
	return ferror(stdout) ? EXIT_FAILURE : EXIT_SUCCESS;
}
