/* linear_fused: products that do what stands around them. */

enum { USE_NONE, USE_READ, USE_WRITE };

static int one_of(const llm_buffer *b, std::initializer_list<const llm_buffer *> all) {
    for (const llm_buffer *x : all)
        if (x == b) return 1;
    return 0;
}

/* What a record does with a buffer first; of kinds that are not told apart it is reading. */
static int record_uses(const record *rec, const llm_buffer *b) {
    const llm_residual_op *res = &rec->op.residual;
    const llm_linear_op *lin = &rec->op.linear;
    const llm_experts_op *exp = &rec->op.experts;
    const llm_lora_op *lora = &rec->op.lora;
    switch (rec->kind) {
    case OP_RESIDUAL: return res->x == b || res->y == b ? USE_READ : res->h == b && res->kind ? USE_WRITE : USE_NONE;
    case OP_LINEAR:
        if (lin->src == b || lin->plus == b || (lin->dst == b && (lin->add || lin->dst_col))) return USE_READ;
        return lin->dst == b ? USE_WRITE : USE_NONE;
    case OP_QKV: return one_of(b, {rec->op.qkv.qkv, rec->op.qkv.rope}) ? USE_READ : USE_NONE;
    case OP_ATTENTION: return rec->op.attention.qkv == b ? USE_READ : rec->op.attention.dst == b ? USE_WRITE : USE_NONE;
    case OP_NORM: return one_of(b, {rec->op.norm.src, rec->op.norm.dst}) ? USE_READ : USE_NONE;
    case OP_ROUTE: return one_of(b, {rec->op.route.logits, rec->op.route.dst}) ? USE_READ : USE_NONE;
    case OP_EXPERTS: return one_of(b, {exp->src, exp->routes, exp->dst, exp->low, exp->plus}) ? USE_READ : USE_NONE;
    case OP_GATE: return one_of(b, {rec->op.gate.gate, rec->op.gate.dst}) ? USE_READ : USE_NONE;
    case OP_GATHER: return one_of(b, {rec->op.gather.src, rec->op.gather.dst}) ? USE_READ : USE_NONE;
    case OP_LOGITS: return one_of(b, {rec->op.logits.src, rec->op.logits.plus}) ? USE_READ : USE_NONE;
    case OP_LORA: return one_of(b, {lora->src, lora->low, lora->dst}) ? USE_READ : USE_NONE;
    case OP_ALL_REDUCE: return rec->op.reduce.buf == b ? USE_READ : USE_NONE;
    default: return USE_READ;
    }
}

/* What becomes first of what a buffer has behind record i. */
static int record_next_use(const rank *r, int i, const llm_buffer *b) {
    int use = USE_NONE;
    while (++i < r->n && !use) use = record_uses(&r->list[i], b);
    return use;
}
static int record_dead(const rank *r, int i, const llm_buffer *b) { return record_next_use(r, i, b) == USE_WRITE; }

/* Whether record i is a product that alone reads what a residual record leaves in h, all of it. */
static int record_alone_reads(const rank *r, int i, const llm_residual_op *res) {
    const llm_linear_op *lin = &r->list[i].op.linear;
    return i < r->n && r->list[i].kind == OP_LINEAR && lin->src == res->h && lin->plus != res->h && !lin->src_col &&
           lin->rows == res->rows && lin->weight->cols == res->x->cols && record_dead(r, i, res->h);
}

/* Whether record i is a product whose result a residual record adds to x, and nothing else. */
static int record_only_adds(const rank *r, int i, const llm_residual_op *res) {
    const llm_linear_op *lin = &r->list[i].op.linear;
    return i >= 0 && r->list[i].kind == OP_LINEAR && lin->dst == res->y && !lin->dst_col && !lin->add && lin->rows == res->rows &&
           lin->weight->rows == res->x->cols && !lin->weight->gate_up && lin->src != res->x && record_dead(r, i + 1, res->y);
}

/* Of few rows a norm between two products is done by both: the one before adds to x, the one behind norms what it reads, and the record
 * itself goes. So a layer is two launches less. Sums over ranks stand between, and other norms than RMS or with more to do. */
static void list_fuse(rank *r) {
    for (int i = 0; i < r->n; i++) r->list[i].done = 0, r->list[i].onto = NULL, r->list[i].norm = NULL, r->list[i].qkv = NULL;
    for (int i = 0; i < r->n && r->ctx->n_group == 1; i++) {
        const llm_residual_op *res = &r->list[i].op.residual;
        if (r->list[i].kind != OP_RESIDUAL || res->kind != LLM_NORM_RMS || res->bias || res->replace || res->post_kind || res->post_weight)
            continue;
        if (!few_rows(r, padded_rows(r, res->rows))) continue;
        if (!record_alone_reads(r, i + 1, res) || (res->y && !record_only_adds(r, i - 1, res))) continue;
        if (res->y) r->list[i - 1].onto = res->x, r->list[i - 1].by = res->scale != 0 ? res->scale : 1;
        r->list[i + 1].norm = res;
        r->list[i].done = 1;
    }
}

/* This rank's share of the logits, to its own buffer (max_out, widest): as wide as the widest share, so that one all-gather puts equal
 * pieces together. Twin: llm__run_logits_op. */
static void run_logits(rank *r, const llm_logits_op *op) {
    const linear_args a = {.x = op->src->data,
                           .x_stride = op->src->stride,
                           .out = r->logits,
                           .out_stride = r->ctx->widest,
                           .n_rows = device_rows(r, LLM_ROWS_OUT),
                           .scale = op->scale != 0 ? op->scale : 1,
                           .softcap = op->softcap};
    run_product(r, op->head, op->bias, op->plus, a, padded_rows(r, LLM_ROWS_OUT));
}
