/* A game loop with two characters that talk: game MODEL
 * 60 pictures a second; each leaves 5 ms for both answers, which come letter by letter. At the end: how long the pictures took. */
#include "llm.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { CHARACTERS = 2, MOST = 60 * 60 };

typedef struct character {
    const char *name, *role, *question;
    llm_chat *chat;
    char said[2048];
} character;

/* What else a picture takes: the time that is left of it. */
static void draw(double ms) {
    struct timespec t = {0, (long)(ms * 1e6)};
    if (ms > 0) nanosleep(&t, NULL);
}

static int by_size(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

int main(int argc, char **argv) {
    static double took[MOST];
    character who[CHARACTERS] = {{"Smith", "You are a blacksmith in a small village. Speak two sentences.", "What do you sell?", NULL, ""},
                                 {"Guard", "You are a guard at the gate of a castle. Speak two sentences.", "May I come in?", NULL, ""}};
    llm_engine_config cfg;
    memset(&cfg, 0, sizeof cfg);
    cfg.max_model_len = 1024;
    cfg.max_num_seqs = CHARACTERS; /* they speak at the same time, and share every step */
    llm *l = argc > 1 ? llm_load(argv[1], &cfg) : NULL;
    if (!l) return fprintf(stderr, "%s\n", argc > 1 ? llm_last_error() : "usage: game MODEL"), 1;
    for (int i = 0; i < CHARACTERS; i++) {
        who[i].chat = llm_chat_new(l, who[i].role);
        llm_chat_sampling(who[i].chat)->max_tokens = 60;
        if (llm_chat_say(who[i].chat, who[i].question)) return fprintf(stderr, "%s\n", llm_last_error()), 1;
    }
    int pictures = 0, talking = 1;
    while (talking && pictures < MOST) {
        const double begin = llm_now();
        talking = 0;
        for (int i = 0; i < CHARACTERS;
             i++) { /* whoever steps the engine moves all of them on; the second mostly finds its letters there */
            const char *piece = llm_chat_next_for(who[i].chat, 5.0 / (int)CHARACTERS);
            if (piece) strncat(who[i].said, piece, sizeof who[i].said - strlen(who[i].said) - 1);
            talking |= llm_chat_busy(who[i].chat);
        }
        took[pictures++] = (llm_now() - begin) * 1000;
        draw(1000.0 / 60 - took[pictures - 1]);
    }
    for (int i = 0; i < CHARACTERS; i++) {
        printf("%s: %s\n", who[i].name, who[i].said);
        llm_chat_free(who[i].chat);
    }
    qsort(took, (size_t)pictures, sizeof *took, by_size);
    printf("%d pictures; of each the answers took %.1f ms (median), nine in ten at most %.1f ms\n", pictures, took[pictures / 2],
           took[pictures * 9 / 10]);
    llm_free(l);
    return 0;
}
