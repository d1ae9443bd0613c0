#include "base/child.h"
#include "api/config.h"
#include "api/text.h"
#include "base/platform.h"
#include "base/log.h"

/* A pipe whose ends are above the standard streams, which a program may have closed, and which no other child gets. */
static int llm__child_pipe(int ends[2]) {
    int low[2];
    if (pipe(low)) return -1;
    for (int i = 0; i < 2; i++) {
        ends[i] = fcntl(low[i], F_DUPFD_CLOEXEC, 3);
        close(low[i]);
    }
    if (ends[0] >= 0 && ends[1] >= 0) return 0;
    for (int i = 0; i < 2; i++)
        if (ends[i] >= 0) close(ends[i]);
    return -1;
}

static int llm__child_start(const llm__child *c, int in, int out, pid_t *pid) {
    posix_spawn_file_actions_t files;
    int failed = posix_spawn_file_actions_init(&files);
    if (failed) return failed;
    failed = posix_spawn_file_actions_adddup2(&files, in, 0);
    if (!failed) failed = posix_spawn_file_actions_adddup2(&files, out, 1);
    if (!failed) failed = posix_spawn_file_actions_addopen(&files, 2, "/dev/null", O_WRONLY, 0);
    if (!failed && c->held_fd > 0) failed = posix_spawn_file_actions_adddup2(&files, c->held_fd, 3);
    if (!failed) failed = posix_spawnp(pid, c->argv[0], &files, NULL, (char *const *)(uintptr_t)c->argv, (char *const *)(uintptr_t)c->env);
    posix_spawn_file_actions_destroy(&files);
    return failed;
}

/* Its output up to the end of it. */
static llm_result llm__child_read(const llm__child *c, int from, llm_text *out) {
    const size_t before = out->len;
    char block[16384];
    for (;;) {
        struct pollfd ready = {from, POLLIN, 0};
        const int n = poll(&ready, 1, 200);
        if (c->tick && c->tick(c->user)) return llm__error(LLM_ERR_CANCELLED, "%s: stopped", c->argv[0]);
        if (n <= 0) continue;
        const ssize_t got = read(from, block, sizeof block);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) return out->failed ? llm__nomem() : LLM_OK;
        if (out->len - before + (size_t)got > c->limit)
            return llm__error(LLM_ERR_LIMIT, "%s: more than %zu bytes of output", c->argv[0], c->limit);
        llm_text_add(out, block, (size_t)got);
    }
}

/* All that it is to read lies in its pipe before it begins, so that nobody waits for a reader that may be gone. */
LLM__PRIVATE llm_result llm__child_run(const llm__child *c, llm_text *out, int *code) {
    int in[2] = {-1, -1}, from[2], status = 0;
    pid_t pid = 0;
    *code = -1;
    if (llm__child_pipe(from)) return llm__error(LLM_ERR_IO, "%s: no pipe: %s", c->argv[0], strerror(errno));
    int failed = llm__child_pipe(in) ? errno : 0;
    if (!failed && fcntl(in[1], F_SETFL, O_NONBLOCK)) failed = errno;
    if (!failed && c->in.n && write(in[1], c->in.p, c->in.n) != (ssize_t)c->in.n) failed = EMSGSIZE;
    if (!failed) failed = llm__child_start(c, c->in_fd > 0 ? c->in_fd : in[0], from[1], &pid);
    for (int i = 0; i < 2; i++)
        if (in[i] >= 0) close(in[i]);
    close(from[1]);
    llm_result r = failed ? llm__error(LLM_ERR_IO, "%s: %s", c->argv[0], strerror(failed)) : llm__child_read(c, from[0], out);
    close(from[0]);
    if (failed) return r;
    if (r) kill(pid, SIGKILL);
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR) continue;
    if (!r && WIFEXITED(status)) *code = WEXITSTATUS(status);
    return r;
}
