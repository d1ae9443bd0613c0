/* A conversation that is kept in a file: chat MODEL [FILE.json]
 * Reads a message a line from standard input. With a file it goes on where the last conversation ended. */
#include "llm.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A whole file as a string, to be freed; NULL: it is not there. */
static char *read_file(const char *path) {
    FILE *f = path ? fopen(path, "rb") : NULL;
    if (!f) return NULL;
    fseek(f, 0, SEEK_END);
    long n = ftell(f);
    char *text = (char *)calloc(1, (size_t)n + 1);
    rewind(f);
    if (text && fread(text, 1, (size_t)n, f) != (size_t)n) text[0] = 0;
    fclose(f);
    return text;
}

static void write_file(const char *path, const char *text) {
    FILE *f = path && text ? fopen(path, "wb") : NULL;
    if (f) fprintf(f, "%s\n", text), fclose(f);
}

int main(int argc, char **argv) {
    if (argc < 2) return fprintf(stderr, "usage: chat MODEL [FILE.json]\n"), 2;
    llm *l = llm_load(argv[1], NULL);
    if (!l) return fprintf(stderr, "%s\n", llm_last_error()), 1;
    llm_chat *chat = llm_chat_new(l, "You are a helpful assistant. Answer briefly.");
    const char *file = argc > 2 ? argv[2] : NULL;
    char *kept = read_file(file), line[4096];
    if (kept && llm_chat_load(chat, kept, strlen(kept))) fprintf(stderr, "%s: %s\n", file, llm_last_error());
    free(kept);
    while (fgets(line, sizeof line, stdin)) {
        line[strcspn(line, "\n")] = 0;
        if (llm_chat_say(chat, line)) { /* the conversation is as it was: shorten it, or ask something else */
            fprintf(stderr, "%s\n", llm_last_error());
            continue;
        }
        for (const char *piece; (piece = llm_chat_next(chat)) != NULL;) {
            fputs(piece, stdout);
            fflush(stdout);
        }
        llm_answer a;
        llm_chat_get_answer(chat, &a);
        if (a.finish == LLM_FINISH_ERROR) fprintf(stderr, "\n%s", a.error);
        if (a.finish == LLM_FINISH_LENGTH) fputs(a.context_left ? " ..." : " ... (the context is full)", stdout);
        printf("\n[%d tokens read, %d of them known; %d written in %.2f s]\n", a.prompt_tokens, a.cached_tokens, a.completion_tokens,
               a.total_s);
    }
    write_file(file, llm_chat_messages(chat));
    llm_chat_free(chat);
    llm_free(l);
    return 0;
}
