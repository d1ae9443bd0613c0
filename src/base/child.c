#include "base/child.h"
#include "api/config.h"
#include "api/text.h"
#include "base/platform.h"
#include "base/log.h"
#include "base/text.h"

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

LLM__PRIVATE int llm__child_file(llm__str data) {
    const int fd = (int)syscall(SYS_memfd_create, "llm.h", 1u); /* 1: no other child gets it */
    for (size_t at = 0; fd >= 0 && at < data.n;) {
        const ssize_t n = write(fd, data.p + at, data.n - at);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return close(fd), -1;
        at += (size_t)n;
    }
    return fd;
}

static int llm__child_spawn(const llm__child *c, int in, int out, pid_t *pid) {
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

/* ---- A program that is not trusted ----
 * posix_spawn knows no bounds, so its process is forked. Between fork and exec only system calls are made, for other threads may have held
 * any lock. */

/* Becomes the program wherever PATH has it, as posix_spawnp does. Returns why not. */
static int llm__child_exec(const llm__child *c) {
    extern char **environ;
    char path[1024];
    const char *dirs = "/bin:/usr/bin";
    int why = ENOENT;
    for (char **e = environ; e && *e; e++)
        if (!strncmp(*e, "PATH=", 5)) dirs = *e + 5;
    if (strchr(c->argv[0], '/')) dirs = "";
    for (const char *end; dirs; dirs = *end ? end + 1 : NULL) {
        const size_t n = strcspn(dirs, ":"), name = strlen(c->argv[0]);
        end = dirs + n;
        if (n + name + 2 > sizeof path) continue;
        memcpy(path, dirs, n);
        path[n] = '/';
        memcpy(path + n + (n > 0), c->argv[0], name + 1);
        execve(path, (char *const *)(uintptr_t)c->argv, (char *const *)(uintptr_t)c->env);
        if (errno != ENOENT && errno != ENOTDIR) why = errno;
    }
    return why;
}

/* In the forked process: its group, its streams, its bounds, and then the program. Does not return; says through `tell` why it failed. */
static void llm__child_become(const llm__child *c, int in, int out, int tell) {
    const struct {
        int what;
        uint64_t bounds[2];
    } all[] = {{RLIMIT_AS, {(uint64_t)c->memory, (uint64_t)c->memory}}, {RLIMIT_FSIZE, {0, 0}}, {RLIMIT_CORE, {0, 0}}};
    const int none = open("/dev/null", O_WRONLY);
    int why = none < 0 || setpgid(0, 0) || dup2(in, 0) < 0 || dup2(out, 1) < 0 || dup2(none, 2) < 0 ? errno : 0;
    for (int i = 0; i < LLM__COUNT(all) && !why; i++)
        if (syscall(SYS_prlimit64, 0, all[i].what, all[i].bounds, NULL)) why = errno;
    if (none > 2) close(none);
    if (!why) why = llm__child_exec(c);
    if (write(tell, &why, sizeof why) >= 0 || why) syscall(SYS_exit_group, 127);
}

static int llm__child_fork(const llm__child *c, int in, int out, pid_t *pid) {
    int tell[2], why = 0;
    if (llm__child_pipe(tell)) return errno;
    *pid = fork();
    if (!*pid) llm__child_become(c, in, out, tell[1]);
    const int failed = *pid < 0 ? errno : 0;
    close(tell[1]);
    ssize_t n = 0;
    while (!failed && (n = read(tell[0], &why, sizeof why)) < 0 && errno == EINTR) continue; /* nothing comes where exec closed it */
    close(tell[0]);
    if (failed || n != (ssize_t)sizeof why) return failed;
    while (waitpid(*pid, NULL, 0) < 0 && errno == EINTR) continue;
    return why;
}

/* Its end; after an error, or with `tick`'s word, by force. Who writes no more may still run. */
static llm_result llm__child_wait(const llm__child *c, pid_t pid, llm_result r, int *status) {
    const struct timespec pause = {0, 5000000};
    for (int i = 0; !r; i++) {
        siginfo_t info;
        memset(&info, 0, sizeof info);
        if (waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT | WNOHANG) || info.si_pid == pid) break;
        if (i % 40 == 39 && c->tick && c->tick(c->user)) r = llm__error(LLM_ERR_CANCELLED, "%s: stopped", c->argv[0]);
        nanosleep(&pause, NULL);
    }
    /* nobody has taken its end yet, so its number is still its own */
    if (c->memory > 0) kill(-pid, SIGKILL);
    else if (r) kill(pid, SIGKILL);
    while (waitpid(pid, status, 0) < 0 && errno == EINTR) continue;
    return r;
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
    if (!failed && c->in_fd > 0 && lseek(c->in_fd, 0, SEEK_SET)) failed = errno;
    if (!failed) failed = (c->memory > 0 ? llm__child_fork : llm__child_spawn)(c, c->in_fd > 0 ? c->in_fd : in[0], from[1], &pid);
    for (int i = 0; i < 2; i++)
        if (in[i] >= 0) close(in[i]);
    close(from[1]);
    llm_result r = failed ? llm__error(LLM_ERR_IO, "%s: %s", c->argv[0], strerror(failed)) : llm__child_read(c, from[0], out);
    close(from[0]);
    if (failed) return r;
    r = llm__child_wait(c, pid, r, &status);
    if (!r && WIFEXITED(status)) *code = WEXITSTATUS(status);
    return r;
}
