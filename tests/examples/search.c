/* Search by meaning: search MODEL QUERY < documents.txt
 * A document a line, at most 1000. Each becomes a vector, the mean of the model's last hidden states; the nearest to the query's come first. A model that was trained
 * for embeddings does it best. */
#include "llm.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 1000 };

typedef struct document {
    char *text;
    llm_request *request;
    double score;
} document;

static llm_request *embed(llm_engine *e, const char *text) {
    llm_request_config c;
    llm_request *r = NULL;
    memset(&c, 0, sizeof c);
    c.prompt = text;
    c.prompt_len = strlen(text);
    c.tokenize_flags = LLM_TOK_ADD_SPECIAL;
    c.pooling = LLM_POOLING_MEAN;
    if (llm_request_submit(e, &c, &r)) fprintf(stderr, "%.40s: %s\n", text, llm_last_error());
    return r;
}

/* The cosine of the angle between two vectors; -2 where there is none. */
static double nearness(llm_request *x, llm_request *y) {
    int32_t n = 0;
    const float *a = x ? llm_request_embedding(x, &n) : NULL, *b = y ? llm_request_embedding(y, &n) : NULL;
    double ab = 0, aa = 0, bb = 0;
    for (int32_t i = 0; a && b && i < n; i++) {
        ab += (double)a[i] * (double)b[i];
        aa += (double)a[i] * (double)a[i];
        bb += (double)b[i] * (double)b[i];
    }
    return a && b ? ab / sqrt(aa * bb) : -2;
}

static int by_score(const void *a, const void *b) {
    double x = ((const document *)a)->score, y = ((const document *)b)->score;
    return (x < y) - (x > y);
}

int main(int argc, char **argv) {
    if (argc < 3) return fprintf(stderr, "usage: search MODEL QUERY < documents.txt\n"), 2;
    llm_model *model = NULL;
    llm_engine *engine = NULL;
    llm_engine_config cfg;
    memset(&cfg, 0, sizeof cfg);
    cfg.max_model_len = 512;
    cfg.max_num_seqs = 16; /* so many documents are read together */
    if (llm_model_open(argv[1], NULL, &model) || llm_engine_open(model, &cfg, &engine)) {
        fprintf(stderr, "%s\n", llm_last_error());
        llm_model_close(model);
        return 1;
    }
    static document all[MOST];
    char line[8192];
    int n = 0, busy = 1;
    llm_request *query = embed(engine, argv[2]);
    while (n < MOST && fgets(line, sizeof line, stdin)) {
        line[strcspn(line, "\n")] = 0;
        all[n].text = (char *)malloc(strlen(line) + 1);
        if (!all[n].text) break;
        all[n].request = embed(engine, strcpy(all[n].text, line));
        n++;
    }
    while (busy)
        if (llm_engine_step(engine, &busy)) fprintf(stderr, "%s\n", llm_last_error());
    for (int i = 0; i < n; i++) all[i].score = nearness(query, all[i].request);
    qsort(all, (size_t)n, sizeof *all, by_score);
    for (int i = 0; i < n && i < 5; i++) printf("%.3f  %s\n", all[i].score, all[i].text);
    for (int i = 0; i < n; i++) {
        llm_request_free(all[i].request);
        free(all[i].text);
    }
    llm_request_free(query);
    llm_engine_close(engine);
    llm_model_close(model);
    return 0;
}
