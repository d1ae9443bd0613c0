/* tower_load: the tensors of a tower, whatever they are called. */
#pragma once
#include "api/config.h"
#include "api/model.h"
#include "api/backend.h"
#include "base/platform.h"
#include "base/alloc.h"
#include "model/loader.h"
#include "vision/vision.h"
#include "vision/tower.h"

/* Goes through all weights. After the first failure all calls do nothing; `r` keeps the error. Without a tower it only checks. */
typedef struct llm__tower_loader {
    const llm_model *m;
    llm__vision *v;
    llm__tower *t;             /* NULL: check only */
    const char *root, *layers; /* how the tower's names begin, and those of its layers go on */
    llm__arena keep;           /* what was put together here, until the backend has packed it */
    int dry;                   /* 1: nothing is read */
    llm_result r;
} llm__tower_loader;

/* A part of a stored matrix or vector: rows [row, row + n) of `all`, with so many columns; a vector has none. */
typedef struct llm__tower_part {
    const char *names;
    int64_t all, row, n;
} llm__tower_part;

/* All weights: looks each up and checks its shape, and hands it over if there is a tower to have them. */
LLM__PRIVATE void llm__tower_weights(llm__tower_loader *L);

/* The widths of the projector's steps, before there is a backend. */
LLM__PRIVATE void llm__tower_plan(llm__tower_loader *L, llm__tower *t);

/* Numbers that were made here, as a vector of the backend's. */
LLM__PRIVATE llm_result llm__tower_numbers(const llm__tower *t, const char *name, const float *data, int64_t n, llm_weight **out);

/* Names of the tower's tensors, and how many parameters; every tensor is looked up. */
LLM__PRIVATE llm_result llm__tower_check(const llm_model *m, llm__vision *v);
