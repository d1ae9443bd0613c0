/* files: files are mapped, or read where mapping is refused.
 *
 * A mapped file costs no memory of its own, is shared by all programs that map it, and is there at once: its pages come when they are first
 * read. Where a file cannot be mapped (some network and container file systems), or the user says so, it is read into pages instead; the
 * caller sees no difference. Only regular files are opened: a FIFO or a device as a model must not hang or fill the memory. What is read of
 * a mapped file that somebody has cut short ends the process (SIGBUS): who uses one for long asks llm__file_whole before, and whoever must
 * live with files that are cut at any moment reads instead of mapping. */
#pragma once
#include "api/config.h"
#include "api/text.h"
#include "api/model.h"
#include "base/platform.h"

typedef struct llm__file {
    const uint8_t *data;
    size_t size;
    int mapped;   /* data stands in a mapping, which begins at the page before it */
    int borrowed; /* somebody else owns it */
    int watch;    /* of a mapped one: a descriptor, and 1; 0: none could be had */
    int64_t end;  /* bytes that its file must have */
} llm__file;

/* Opens a file of at most `limit` bytes (0: any size). On error *out is empty. `data` of an open file is never NULL; no NUL follows it. */
LLM__PRIVATE llm_result llm__file_open(const char *path, size_t limit, int no_mmap, llm__file *out);

/* `size` bytes of an open regular file from `offset` on (size 0: up to its end). The descriptor may be closed afterwards. */
LLM__PRIVATE llm_result llm__file_part(const char *path, int fd, int64_t offset, int64_t size, size_t limit, int no_mmap, llm__file *out);

/* A file that a program has given in memory, which is used as it stands unless its address is odd, or through a reader. */
LLM__PRIVATE llm_result llm__file_given(const char *path, const llm_file *given, size_t limit, llm__file *out);

/* 0 if the file is shorter now than what is mapped of it. A look at its size, some 200 ns: before each use. */
LLM__PRIVATE int llm__file_whole(const llm__file *f);

/* Gives back the memory of n bytes of a mapped file, whole pages, which come again when they are read: for what has been copied. */
LLM__PRIVATE void llm__file_rest(const void *p, size_t n);

/* Unmaps or frees. An empty llm__file is fine. */
LLM__PRIVATE void llm__file_close(llm__file *f);

typedef enum llm__path_kind { LLM__PATH_NONE = 0, LLM__PATH_FILE, LLM__PATH_DIR, LLM__PATH_OTHER } llm__path_kind;

/* What stands at a path, links followed. */
LLM__PRIVATE llm__path_kind llm__path_kind_of(const char *path);

/* Bytes of the regular file at a path; -1: there is none. */
LLM__PRIVATE int64_t llm__path_bytes(const char *path);

/* 1 if two paths lead to the same file. */
LLM__PRIVATE int llm__path_same(const char *a, const char *b);

/* 1 if a path is a link itself; 1 if this process may read what stands there. */
LLM__PRIVATE int llm__path_is_link(const char *path);
LLM__PRIVATE int llm__path_readable(const char *path);

/* The names in a folder in the order of their bytes, each followed by NUL; none if the folder cannot be read.
 *
 *     llm_text names = LLM__ZERO;
 *     llm__folder_names(folder, &names);
 *     for (const char *name = NULL; (name = llm__folder_next(&names, name)) != NULL;) ... */
LLM__PRIVATE void llm__folder_names(const char *folder, llm_text *names);

/* The name after another, the first after NULL; NULL at the end. */
LLM__PRIVATE const char *llm__folder_next(const llm_text *names, const char *name);

/* Makes a folder, unless there is one. */
LLM__PRIVATE llm_result llm__folder_make(const char *path);

/* Makes the folders that a file's path goes through, as far as they are missing. */
LLM__PRIVATE llm_result llm__folders_for(const char *path);

/* Removes what stands at a path; of a folder all that is in it. Links are removed, not followed. */
LLM__PRIVATE llm_result llm__path_remove(const char *path);

/* Appends where a link points to, as it is written; nothing if it is none. */
LLM__PRIVATE void llm__link_target(const char *path, llm_text *to);

/* When the file at a path was last written, in seconds since 1970; 0: there is none. */
LLM__PRIVATE int64_t llm__path_time(const char *path);

/* Opens an existing file to be read, or makes one to be locked; -1: neither. A link at its end is not followed when one is made. */
LLM__PRIVATE int llm__file_descriptor(const char *path, int make);

/* Appends the folder of the running program, with a '/' at its end; nothing if the system does not tell. */
LLM__PRIVATE void llm__program_folder(llm_text *path);

/* Appends the home of the user of this process, as /etc/passwd has it; nothing if it does not. */
LLM__PRIVATE void llm__user_home(llm_text *path);

/* Loads a shared library, and copies the address of one of its functions to *function, which is a pointer to a function of any type. 0: it
 * has none of that name. */
LLM__PRIVATE llm_result llm__library_open(const char *path, void **library);
LLM__PRIVATE int llm__library_function(void *library, const char *name, void *function);
LLM__PRIVATE void llm__library_close(void *library);

/* folder/name as a new string, or NULL without memory. */
LLM__PRIVATE char *llm__path_join(const char *folder, const char *name);
