/* An answer with a stop button: stream MODEL QUESTION
 * The answer is made in a thread of its own, as a window would do it; Enter is the button. It works at any moment, also while a long
 * question is being read, and what was said until then stays in the conversation. */
#include "llm.h"
#include <pthread.h>
#include <stdio.h>

static void *answer(void *arg) {
    llm_chat *chat = (llm_chat *)arg;
    for (const char *piece; (piece = llm_chat_next(chat)) != NULL;) {
        fputs(piece, stdout);
        fflush(stdout);
    }
    llm_answer a;
    llm_chat_get_answer(chat, &a);
    printf("\n[%s after %d tokens]\n", llm_finish_str(a.finish), a.completion_tokens);
    fflush(stdout);
    return NULL;
}

int main(int argc, char **argv) {
    if (argc < 3) return fprintf(stderr, "usage: stream MODEL QUESTION\n"), 2;
    llm *l = llm_load(argv[1], NULL);
    if (!l) return fprintf(stderr, "%s\n", llm_last_error()), 1;
    llm_chat *chat = llm_chat_new(l, NULL);
    pthread_t thread;
    if (llm_chat_say(chat, argv[2])) return fprintf(stderr, "%s\n", llm_last_error()), 1;
    if (pthread_create(&thread, NULL, answer, chat)) return 1;
    getchar(); /* the button; at the end of the input too */
    llm_chat_cancel(chat);
    pthread_join(thread, NULL);
    llm_chat_free(chat);
    llm_free(l);
    return 0;
}
