#include "model/mixture.h"
#include "api/backend.h"
#include "base/platform.h"
#include "base/text.h"
#include "cpu/dtypes.h"
#include "model/tensors.h"
#include "model/gguf.h"

/* In the order of llm__mixtures, without F32 to BF16. */
typedef enum llm__mixture_kind {
    LLM__MIX_OTHER,
    LLM__MIX_Q2_K,
    LLM__MIX_Q3_K_M,
    LLM__MIX_Q3_K_L,
    LLM__MIX_Q4_K_S,
    LLM__MIX_Q4_K_M,
    LLM__MIX_Q5_K_M
} llm__mixture_kind;

static const llm__mixture llm__mixtures[] = {
    {"F32", 0, LLM_TYPE_F32},      {"F16", 1, LLM_TYPE_F16},        {"BF16", 32, LLM_TYPE_BF16},     {"Q4_0", 2, LLM_TYPE_Q4_0},
    {"Q4_1", 3, LLM_TYPE_Q4_1},    {"Q5_0", 8, LLM_TYPE_Q5_0},      {"Q5_1", 9, LLM_TYPE_Q5_1},      {"Q8_0", 7, LLM_TYPE_Q8_0},
    {"Q2_K", 10, LLM_TYPE_Q2_K},   {"Q3_K_S", 11, LLM_TYPE_Q3_K},   {"Q3_K_M", 12, LLM_TYPE_Q3_K},   {"Q3_K_L", 13, LLM_TYPE_Q3_K},
    {"Q4_K_S", 14, LLM_TYPE_Q4_K}, {"Q4_K_M", 15, LLM_TYPE_Q4_K},   {"Q5_K_S", 16, LLM_TYPE_Q5_K},   {"Q5_K_M", 17, LLM_TYPE_Q5_K},
    {"Q6_K", 18, LLM_TYPE_Q6_K},   {"IQ4_NL", 25, LLM_TYPE_IQ4_NL}, {"IQ4_XS", 30, LLM_TYPE_IQ4_XS}, {"MXFP4_MOE", 38, LLM_TYPE_MXFP4}};

LLM__PRIVATE const char *llm__mixture_names(void) {
    return "F32 F16 BF16 Q4_0 Q4_1 Q5_0 Q5_1 Q8_0 Q2_K Q3_K_S Q3_K_M Q3_K_L Q4_K_S Q4_K_M Q5_K_S Q5_K_M Q6_K IQ4_NL IQ4_XS MXFP4_MOE";
}

LLM__PRIVATE const llm__mixture *llm__mixture_find(const char *name) {
    static const char *const short_names[][2] = {{"Q3_K", "Q3_K_M"}, {"Q4_K", "Q4_K_M"}, {"Q5_K", "Q5_K_M"}}; /* llama-quantize's */
    char upper[32];
    size_t n = 0;
    for (; name[n] && n < sizeof upper - 1; n++)
        upper[n] = name[n] == '-' ? '_' : (char)(name[n] >= 'a' && name[n] <= 'z' ? name[n] - 32 : name[n]);
    upper[n] = 0;
    for (int i = 0; i < LLM__COUNT(short_names); i++)
        if (!strcmp(upper, short_names[i][0])) snprintf(upper, sizeof upper, "%s", short_names[i][1]);
    for (int i = 0; i < LLM__COUNT(llm__mixtures); i++)
        if (!strcmp(upper, llm__mixtures[i].name)) return &llm__mixtures[i];
    return NULL;
}

static llm__mixture_kind llm__mix_of(const llm__mixture *m) {
    static const char *const names[] = {"Q2_K", "Q3_K_M", "Q3_K_L", "Q4_K_S", "Q4_K_M", "Q5_K_M"};
    for (int i = 0; i < LLM__COUNT(names); i++)
        if (!strcmp(m->name, names[i])) return (llm__mixture_kind)(i + 1);
    return LLM__MIX_OTHER;
}

LLM__PRIVATE void llm__mixing_open(const llm__mixture *mixture, const llm__gguf *keys, const llm__tensors *tensors, llm__mixing *out) {
    char key[160];
    const llm__str arch = llm__gguf_str(keys, "general.architecture");
    const int n = (int)LLM__MIN(arch.n, (size_t)100);
    int64_t number[4];
    static const char *const ends[] = {"block_count", "expert_count", "attention.head_count", "attention.head_count_kv"};
    memset(out, 0, sizeof *out);
    out->mixture = mixture;
    out->output = out->embedding = -1;
    for (int i = 0; i < 4; i++) {
        snprintf(key, sizeof key, "%.*s.%s", n, arch.p ? arch.p : "", ends[i]);
        number[i] = LLM__MIN(LLM__MAX(llm__gguf_int(keys, key, 0), 0), 1 << 20);
    }
    out->n_layers = (int)number[0];
    out->n_experts = (int)number[1];
    out->groups = number[3] ? (int)(number[2] / number[3]) : 1;
    out->falcon = llm__str_eq(arch, "falcon");
    out->large = out->n_layers == 80 && llm__str_eq(arch, "llama");
    for (size_t i = 0; i < tensors->n; i++) {
        const char *name = tensors->item[i].name.p;
        out->has_output |= !strcmp(name, "output.weight");
        out->n_v += strstr(name, "attn_v.weight") || strstr(name, "attn_qkv.weight") || strstr(name, "attn_kv_b.weight");
    }
}

/* 1 if a tensor is a matrix that is quantised. */
static int llm__mixing_takes(const llm__tensor *t) {
    static const char *const left[] = {"_norm.weight",
                                       "ffn_gate_inp.weight",
                                       "ffn_gate_inp_shexp.weight",
                                       "position_embd.weight",
                                       "token_types.weight",
                                       "altup",
                                       "laurel",
                                       "per_layer_model_proj",
                                       "ssm_conv1d",
                                       "shortconv.conv.weight",
                                       "attn_rel_b.weight",
                                       "time_mix_",
                                       "indexer.proj"};
    if (t->n_dims < 2 || t->n_dims > 3 || !llm__ends_with(t->name.p, "weight")) return 0;
    for (int i = 0; i < LLM__COUNT(left); i++)
        if (strstr(t->name.p, left[i])) return 0;
    return 1;
}

/* 1 for the layers that get more bits: the first and the last eighth, and between them every third. */
static int llm__mixing_more(int i, int n) { return i < n / 8 || i >= 7 * n / 8 || (i - n / 8) % 3 == 2; }

LLM__PRIVATE int llm__mixing_layer(const char *name) {
    int n = 0;
    if (strncmp(name, "blk.", 4) || name[4] < '0' || name[4] > '9') return -1;
    for (const char *p = name + 4; *p >= '0' && *p <= '9' && n < 100000; p++) n = 10 * n + *p - '0';
    return n;
}

/* 1 for mixtures of IQ4. */
static int llm__mix_iq4(const llm__mixing *m) { return m->mixture->base == LLM_TYPE_IQ4_NL || m->mixture->base == LLM_TYPE_IQ4_XS; }

static int32_t llm__mixing_v(llm__mixing *m, llm__mixture_kind mix, int32_t type) {
    const int i = m->v++, more = llm__mixing_more(i, m->n_v);
    if (mix == LLM__MIX_Q2_K) type = m->groups >= 4 ? LLM_TYPE_Q4_K : LLM_TYPE_Q3_K;
    if (mix == LLM__MIX_Q3_K_M) type = i < 2 ? LLM_TYPE_Q5_K : LLM_TYPE_Q4_K;
    if (mix == LLM__MIX_Q3_K_L || (mix == LLM__MIX_Q4_K_S && i < 4) || (llm__mix_iq4(m) && m->groups >= 4)) type = LLM_TYPE_Q5_K;
    if ((mix == LLM__MIX_Q4_K_M || mix == LLM__MIX_Q5_K_M) && more) type = LLM_TYPE_Q6_K;
    if (m->large && (type == LLM_TYPE_Q3_K || type == LLM_TYPE_Q4_K)) type = LLM_TYPE_Q5_K;
    return m->n_experts == 8 ? (int32_t)LLM_TYPE_Q8_0 : type;
}

static int32_t llm__mixing_down(llm__mixing *m, llm__mixture_kind mix, const llm__tensor *t, int32_t type) {
    const int next = m->down++, n = m->n_layers, i = m->n_experts > 1 ? llm__mixing_layer(t->name.p) : next;
    const int more = llm__mixing_more(i, n), first = i < n / 8;
    if (mix == LLM__MIX_Q2_K) return LLM_TYPE_Q3_K;
    if (mix == LLM__MIX_Q3_K_M) return i < n / 16 ? LLM_TYPE_Q5_K : !m->falcon || more ? LLM_TYPE_Q4_K : LLM_TYPE_Q3_K;
    if (mix == LLM__MIX_Q3_K_L) return m->falcon ? LLM_TYPE_Q4_K : LLM_TYPE_Q5_K;
    if (mix == LLM__MIX_Q4_K_M && m->falcon) return i < n / 16 ? LLM_TYPE_Q6_K : more ? LLM_TYPE_Q5_K : LLM_TYPE_Q4_K;
    if ((mix == LLM__MIX_Q4_K_M || mix == LLM__MIX_Q5_K_M) && more) return LLM_TYPE_Q6_K;
    if (mix == LLM__MIX_Q4_K_S && !m->falcon && first) return LLM_TYPE_Q5_K;
    if (llm__mix_iq4(m) && !m->importance && first) return LLM_TYPE_Q5_K;
    if (type == LLM_TYPE_Q4_0 && m->importance && first) return LLM_TYPE_Q4_1;
    if (type == LLM_TYPE_Q5_0 && m->importance && first) return LLM_TYPE_Q5_1;
    return type;
}

static int32_t llm__mixing_attention(const llm__mixing *m, llm__mixture_kind mix, const char *name, int32_t type) {
    const int q4 =
        mix == LLM__MIX_Q4_K_S || mix == LLM__MIX_Q4_K_M || m->mixture->base == LLM_TYPE_Q3_K || mix == LLM__MIX_Q2_K || llm__mix_iq4(m);
    if (strstr(name, "attn_k.weight")) return m->n_experts == 8 ? (int32_t)LLM_TYPE_Q8_0 : type;
    if (strstr(name, "attn_qkv.weight")) {
        if (mix == LLM__MIX_Q3_K_M || mix == LLM__MIX_Q3_K_L) return LLM_TYPE_Q4_K;
        return mix == LLM__MIX_Q4_K_M ? (int32_t)LLM_TYPE_Q5_K : mix == LLM__MIX_Q5_K_M ? (int32_t)LLM_TYPE_Q6_K : type;
    }
    if (!strstr(name, "attn_output.weight")) return type;
    if (m->falcon) return mix == LLM__MIX_Q3_K_L ? (int32_t)LLM_TYPE_Q4_K : type;
    if (m->n_experts == 8) return q4 && mix != LLM__MIX_Q3_K_L ? (int32_t)LLM_TYPE_Q5_K : type;
    if (mix == LLM__MIX_Q2_K) return LLM_TYPE_Q3_K;
    return mix == LLM__MIX_Q3_K_M ? (int32_t)LLM_TYPE_Q4_K : mix == LLM__MIX_Q3_K_L ? (int32_t)LLM_TYPE_Q5_K : type;
}

/* The type by the rules, if rows are whole blocks of it. */
static int32_t llm__mixing_rule(llm__mixing *m, const llm__tensor *t) {
    const char *name = t->name.p;
    const int embedding = !strcmp(name, "token_embd.weight"), output = !strcmp(name, "output.weight") || (embedding && !m->has_output);
    const int32_t type = m->mixture->base;
    const llm__mixture_kind mix = llm__mix_of(m->mixture);
    if (output && m->output >= 0) return m->output;
    if (embedding && m->embedding >= 0) return m->embedding;
    if (m->pure || llm__type_block(type) == 1) return type;
    if (output)
        return type == LLM_TYPE_MXFP4 || m->falcon || t->shape[t->n_dims - 1] % llm__type_block(type) || type == LLM_TYPE_Q8_0
                   ? LLM_TYPE_Q8_0
                   : LLM_TYPE_Q6_K;
    if (type == LLM_TYPE_MXFP4) return t->n_dims > 2 && t->shape[0] > 1 ? LLM_TYPE_MXFP4 : LLM_TYPE_Q8_0;
    if (embedding) return type;
    if (strstr(name, "attn_v.weight")) return llm__mixing_v(m, mix, type);
    if (strstr(name, "ffn_down")) return llm__mixing_down(m, mix, t, type);
    return llm__mixing_attention(m, mix, name, type);
}

LLM__PRIVATE int32_t llm__mixing_type(llm__mixing *m, const llm__tensor *t) {
    static const int32_t small[][2] = {{LLM_TYPE_Q2_K, LLM_TYPE_Q4_0}, {LLM_TYPE_Q3_K, LLM_TYPE_Q4_0}, {LLM_TYPE_Q4_K, LLM_TYPE_Q5_0},
                                       {LLM_TYPE_Q5_K, LLM_TYPE_Q5_1}, {LLM_TYPE_Q6_K, LLM_TYPE_Q8_0}, {LLM_TYPE_IQ4_XS, LLM_TYPE_IQ4_NL}};
    const int64_t cols = t->shape[LLM__MAX(t->n_dims, 1) - 1];
    if (!llm__mixing_takes(t) || (m->keep_output && !strcmp(t->name.p, "output.weight"))) return t->type;
    int32_t type = llm__mixing_rule(m, t);
    for (int i = 0; i < LLM__COUNT(small) && cols % llm__type_block(type); i++)
        if (small[i][0] == type) {
            type = small[i][1];
            break;
        }
    return cols % llm__type_block(type) ? (int32_t)LLM_TYPE_F16 : type;
}
