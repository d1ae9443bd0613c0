/* platform: what is needed of the compiler and the operating system.
 *
 * Linux on x86-64 and aarch64, with glibc or musl. What the system is asked for stands here (clocks, random bytes, cores), in >>alloc
 * (pages), >>files (files, folders, libraries) and >>threads (sleeping and waking), and nowhere else; mutexes, condition variables and
 * files that are written are used where they are wanted, by pthreads and <stdio.h>. Nothing is GNU's own: what POSIX 2008 and BSD declare
 * is enough, which gcc and clang show unless -std=c11 and the like hide it. */
#pragma once

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <arpa/inet.h>
#include <locale.h>
#include <math.h>
#include <netdb.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <dirent.h>
#include <time.h>
#include <unistd.h>

/* What C11 and C++17 spell differently, or gcc and clang only. LLM__UNUSED stands where a program may well not need a function, or a
 * function an argument. */
#define LLM__UNUSED __attribute__((unused))
#define LLM__PRINTF(text, first) __attribute__((format(printf, text, first))) /* numbers of the arguments */
#define LLM__NORETURN __attribute__((noreturn))
#define LLM__PRIVATE __attribute__((visibility("hidden"))) /* what other parts may call; in llm.h, where all parts are one file: static */
#define LLM__INLINE static inline __attribute__((always_inline, unused))
#define LLM__THREAD_LOCAL __thread
#define LLM__MIN(a, b) ((a) < (b) ? (a) : (b))
#define LLM__MAX(a, b) ((a) > (b) ? (a) : (b))
#define LLM__COUNT(array) ((int)(sizeof(array) / sizeof((array)[0])))
#define LLM__SCOPED(end) __attribute__((cleanup(end))) /* the variables are handed to `end` when their block is left, wherever that is */
#ifdef __cplusplus
#define LLM__ZERO \
    {} /* T x = LLM__ZERO: every member is 0; not for a T whose first member is an enum, which C++ does not make of a number */
#else
#define LLM__ZERO \
    { 0 }
#endif

/* What holds whatever files and clients say, because it was checked where it came in. Tests and fuzzers look at it, programs do not. */
#ifdef LLM_ASSERT
#define LLM__ASSERT(condition) LLM_ASSERT(condition)
#else
#define LLM__ASSERT(condition) ((void)0)
#endif

/* What stands between these two runs once a model, a request or a step and is four fifths of the text: gcc does not try hard there, which
 * is a third less time to compile and costs nothing that can be measured. With LLM_SMALL it makes that code small, without the passes that
 * take long and find nothing there: a fifth less time, and half a thousandth less code. */
#if defined(__OPTIMIZE__) && defined(__GNUC__) && !defined(__clang__)
#ifdef LLM_SMALL
#define LLM__COLD_BEGIN \
    _Pragma("GCC push_options") \
        _Pragma("GCC optimize(\"Os\",\"no-tree-pre\",\"no-gcse\",\"no-tree-vrp\",\"no-thread-jumps\",\"no-tree-dominator-opts\")")
#define LLM__COLD __attribute__((optimize("Os")))
#else
#define LLM__COLD_BEGIN _Pragma("GCC push_options") _Pragma("GCC optimize(\"Og\")")
#define LLM__COLD __attribute__((optimize("Og")))
#endif
#define LLM__COLD_END _Pragma("GCC pop_options")
#else
#define LLM__COLD_BEGIN
#define LLM__COLD_END
#define LLM__COLD
#endif

/* g++ warns of members that a designated initialiser leaves out, as C does not. Ends where llm.h does. */
#if defined(__cplusplus) && !defined(__clang__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wmissing-field-initializers"
#endif

/* Seconds of a clock that never jumps: for durations and deadlines. */
LLM__PRIVATE double llm__now(void);

/* Seconds since 1970, as the system's clock has it: for what is shown to people, as it may be set back. */
LLM__PRIVATE double llm__wall_clock(void);

/* Secret bytes that differ each time. */
LLM__PRIVATE void llm__random_bytes(void *out, size_t n);

/* Cores this process may use: what taskset or a container left it, not what the machine has. */
LLM__PRIVATE int llm__cores(void);

/* Bytes of memory that this machine has, used or not. */
LLM__PRIVATE int64_t llm__memory_all(void);

#ifdef SYS_arch_prctl /* x86-64 */
/* 1 if this process may use AMX's tiles: Linux gives them to those who ask, for signal frames grow by 8 KB. Not if a thread has an
 * alternative signal stack too small for that. */
LLM__PRIVATE LLM__UNUSED int llm__ask_for_tiles(void);
#endif
