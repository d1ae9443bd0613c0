/* ============================================================================
 * >>grammar   Answers that must have a form: JSON Schema, regular expressions, GBNF, choices, structural tags.
 * ============================================================================
 * Every form is compiled to one small machine over bytes, a pushdown automaton: BYTES consumes one byte of a set, SPLIT goes two ways, CALL
 * and RETURN run a rule (so schemas and grammars may refer to themselves), REPEAT and AGAIN count the turns of a loop. A count is a number
 * in a stack frame, so maxLength 65536 costs one instruction, not 65536.
 *
 * The machine is nondeterministic: after some text it is in several places at once. A place is a thread (BYTES instruction, stack); stacks
 * are lists of frames that share their tails and are made only once (hash-consing: Ershov 1958), so two threads are equal exactly if their
 * numbers are. The sorted set of threads is a state. Like a lazy DFA (Thompson 1968; RE2) states are numbered as they are met and the step
 * state x byte -> state is remembered; bytes that no instruction tells apart share one column.
 *
 * What may the model say next? Every token is a path of bytes, and the tokens of a vocabulary are a trie. One walk over the trie in
 * preorder, with the state of each depth at hand, steps over whole subtrees once a prefix is impossible, and gives one bit a token: the
 * mask (Willard & Louf 2023). Masks are kept, with counts cut off at the longest token's length in their key: in the middle of a long
 * string all positions have the same mask, so a mask is usually a look-up. tests/test_grammar.py has the plain twin: every token of the
 * vocabulary run through the machine alone.
 *
 * One mask, step by step. The regex [0-9]+\] after "7" is in a state S with two threads: before [0-9] (again) and before "]". A vocabulary
 * of five tokens, 0 "1", 1 "12", 2 "1a", 3 ",", 4 "]", makes this trie; at[d] is the state behind d bytes of the path:
 *
 *   node  byte  depth  token   step                         mask
 *   0     ,     1      3       at[0] = S: dead              skip the subtree
 *   1     1     1      0       at[0] = S -> S = at[1]       bit 0
 *   2     2     2      1       at[1] = S -> S = at[2]       bit 1
 *   3     a     2      2       at[1] = S: dead              skip the subtree
 *   4     ]     1      4       at[0] = S -> the end         bit 4           10011 in binary: 3 of 5 tokens are allowed
 *
 * Five steps for a vocabulary of seven bytes: "1" was stepped over once for three tokens. In a real one the first dead byte spares
 * thousands of tokens at a time. The sampler sets the logits of the others to minus infinity; the token that it draws moves S on, byte by
 * byte.
 *
 * Other systems do the same work elsewhere. outlines has a table from each state of a DFA to its tokens, made beforehand (no recursion, and
 * large schemas take long). xgrammar (Dong et al. 2024) runs pushdown automata as here, and sorts the vocabulary beforehand into tokens
 * that a position decides alone and those that need the stack. llguidance walks a trie at run time, with an Earley parser over lexemes that
 * are derivatives of regexes, and "slices" as here, but made beforehand for a few regexes. llama.cpp keeps sets of stacks and tries every token of the vocabulary on them. Here nothing is done
 * beforehand but the trie: compiling takes about as long as reading the schema, and what is walked is only what answers really meet.
 *
 * Who owns what: a grammar owns instructions, states and masks, behind one lock, and is shared by all answers that use it; a matcher is
 * one answer's place (a state) in it; the shelf of a model keeps the trie and the latest grammars.
 *
 * Limits (all refused or ended with a sentence): instructions, threads of a state, stack depth, bytes of states and masks. Left recursion
 * is refused. */

/* Most bytes of a text, instructions, nested schemas; threads of a state, frames, what a step meets. */
enum { LLM__GR_MAX_TEXT = 1 << 20, LLM__GR_MAX_OPS = 1 << 20, LLM__GR_MAX_NEST = 64 };
enum { LLM__GR_MAX_THREADS = 4096, LLM__GR_MAX_DEPTH = 400, LLM__GR_MAX_WORK = 1 << 18 };

/* What a compilation, a mask or a token's bytes may cost: in units of some 10 to 20 ns (an instruction, a key that is compared), so a quarter
 * of a second at most; a thread that a step meets costs LLM__GR_MEET. Schemas of real programs need a hundredth of it. */
enum { LLM__GR_FUEL = 10 << 20, LLM__GR_MEET = 8 };

/* Bytes of a token; slices, their lengths that are told apart, nodes worth one; bytes of states and of masks; grammars on a shelf, their bytes. */
enum { LLM__GR_MAX_TOKEN = 255, LLM__GR_SLICES = 12, LLM__GR_RUNS = 14, LLM__GR_SLICE_NODES = 8192 };
enum { LLM__GR_STATE_BYTES = 64 << 20, LLM__GR_MASK_BYTES = 32 << 20, LLM__GR_SHELF = 64, LLM__GR_SHELF_BYTES = 256 << 20 };

/* The instructions. Only BYTES looks at the text; a thread stands still on it and on ACCEPT alone:
 *
 *   SPLIT    goes to `next`, and to `other` if that is not -1: alternatives, options, and joints between fragments
 *   BYTES    consumes one byte of set a, goes to `next`
 *   CALL     pushes (this, 0) and goes to a, the first instruction of a rule;  RETURN pops, and goes to the `next` of that CALL
 *   REPEAT   pushes (this, 0) and goes to a, the body;                         AGAIN counts a turn: see llm__gr_again
 *   ACCEPT   the text may end here: a place like BYTES, whose set is empty */
typedef enum llm__gr_kind {
    LLM__GR_SPLIT, LLM__GR_BYTES, LLM__GR_CALL, LLM__GR_RETURN, LLM__GR_REPEAT, LLM__GR_AGAIN, LLM__GR_ACCEPT
} llm__gr_kind;

typedef struct llm__gr_op {
    uint8_t kind, alive;    /* alive: some text leads from here to the end of its rule */
    uint8_t wide, part;     /* BYTES of ASCII, wide: what is not ASCII may come here as well, and leads to `next` too, over BYTES that are part */
    int32_t a;              /* BYTES: set; CALL: first instruction of the rule; REPEAT: of the body; AGAIN: its REPEAT */
    int32_t next, other;    /* SPLIT: the second way, -1: none */
    int32_t min, max;       /* REPEAT: turns; max -1: any number */
} llm__gr_op;

/* A stack is a frame and, by `parent`, all below it. Frames never change: another count is another frame. So stacks share their tails, as
 * the lists of Lisp do, and a step copies none:
 *
 *   thread 1: frame 7 (REPEAT 40, count 2) --+
 *                                            +--> frame 3 (CALL 12) --> frame 0, the bottom
 *   thread 2: frame 9 (CALL 33) -------------+ */
typedef struct llm__gr_frame {
    int32_t op, count;      /* a CALL to return from, or a REPEAT with the turns that are done (not counted beyond min when max is -1) */
    int32_t parent, depth;
} llm__gr_frame;

typedef struct llm__gr_thread {
    int32_t op, frame;
} llm__gr_thread;

/* What a step has met: a thread, and how it came there; see llm__gr_meet. */
typedef struct llm__gr_met {
    llm__gr_thread at;
    int32_t fresh, base; /* frames of the stack that are new in this step; least depth of the stack on the way */
} llm__gr_met;

typedef struct llm__gr_state {
    int32_t from, n;        /* its threads */
    int32_t accept;         /* the text may end here */
} llm__gr_state;

/* Open addressing over things that live in an array of the grammar and are told apart by what is in them (llm__gr_key): frames, states, masks
 * and the work of a step. */
typedef struct llm__gr_index {
    int32_t *slot;          /* index of an entry + 1, 0: free */
    size_t cap;             /* 0 or a power of two */
} llm__gr_index;

/* What every node of the trie is to a set of characters, as [A-Za-z0-9]: which tokens at it and below are runs of the set, and where the
 * others leave it. Most of a vocabulary are words, and most loops of grammars read words; see llm__gr_leaves for what that spares. */
typedef struct llm__gr_slice {
    uint32_t ascii[4];      /* which of ASCII the set has */
    int wide;               /* it has all other characters too */
    uint32_t *kinds;        /* (nodes) bits, see llm__gr_slice_make; those of a node hold those of its subtree */
    uint32_t *runs;         /* (LLM__GR_RUNS + 1, (vocab + 31) / 32) tokens of at most so many characters of the set and nothing else; the last: of any number */
    uint64_t used;          /* when, as a number that grows */
    int32_t users;          /* walks that read it now; atomic */
} llm__gr_slice;

/* The vocabulary as a trie in preorder: what to visit next is the next element, what to skip a subtree to is an index, and there is no
 * pointer to chase (llguidance's toktrie is laid out so). Node i is the byte below its nearest ancestor of depth[i] - 1. Tokens in the
 * order of their nodes stand in `order`, so those of a subtree are a run of it. */
typedef struct llm__gr_trie {
    uint8_t *byte, *depth;  /* (n) depth: 1 for the first byte of a token */
    int32_t *skip;          /* (n) the node after the subtree */
    int32_t *from;          /* (n + 1) tokens that end at node i: order[from[i]] to order[from[i + 1] - 1] */
    int32_t *order;         /* ids */
    char *spelling;         /* the bytes of all tokens, one after the other */
    int32_t *end;           /* (vocab) where each ends there */
    int32_t n, vocab, longest;
    pthread_mutex_t lock;   /* of the slices, which all grammars share: taken within a grammar's lock, never around one */
    llm__gr_slice slice[LLM__GR_SLICES];
    uint64_t clock;
} llm__gr_trie;

/* Bit id % 32 of words[id / 32] is 1 if the token may come next: the layout that xgrammar, llguidance and their users share. */
typedef struct llm__gr_mask {
    uint64_t key[2];
    uint32_t *words;        /* (vocab + 31) / 32 */
    int32_t n_allowed;      /* tokens, without those that end the answer */
} llm__gr_mask;

struct llm_grammar {
    pthread_mutex_t lock;   /* of everything below that grows while it is used */
    int32_t refs;           /* atomic */
    const llm__tokenizer *tokenizer; /* NULL: none, so no masks */
    llm__gr_op *op;
    size_t n_ops, ops_cap;
    uint32_t (*set)[8];     /* 256 bits each */
    size_t n_sets, sets_cap;
    uint8_t class_of[256], class_byte[256];
    int32_t n_classes, start;
    llm__gr_frame *frame;   /* 0: the bottom */
    size_t n_frames, frames_cap;
    llm__gr_thread *thread;
    size_t n_threads, threads_cap;
    llm__gr_state *state;   /* 0: dead, 1: where every answer starts */
    size_t n_states, states_cap;
    int32_t *to;            /* (n_states, n_classes) -1: not yet known */
    size_t to_cap;
    llm__gr_met *work;      /* of one step: threads met so far, see llm__gr_follow */
    size_t n_work, work_cap;
    llm__gr_mask *mask;
    size_t n_masks, masks_cap;
    llm__gr_index frames_at, states_at, work_at, masks_at;
    int64_t *fuel;          /* what may still be spent before whoever asks (for a mask, a step, a compilation) is told no; the asker's */
    llm__gr_trie *trie;     /* of the model; NULL without one */
    struct llm_matcher *matchers; /* of running answers: their states survive when the memory of states is emptied */
    const char *failed;     /* why the machine gave up what is asked of it now; NULL */
    int looking;            /* while a mask is only looked for */
    int every_frame;        /* while left recursion is looked for: a call at the end of a rule takes a frame too */
};

struct llm__gr_kept {
    char *key;              /* kind, space, after, text */
    size_t n;
    llm_grammar *grammar;
};

/* What all grammars of a model share: its trie, and the grammars that were asked for lately, so that the next request with the same schema
 * finds its masks made. Least recently used ones go when all together take too much memory. */
struct llm__gr_shelf {
    llm__attached attached;
    llm__gr_trie *trie;
    pthread_mutex_t lock;   /* of all that follows */
    struct llm__gr_kept kept[LLM__GR_SHELF]; /* the latest first */
    int32_t n_kept;
};

struct llm_matcher {
    llm_grammar *grammar;
    struct llm_matcher *next, **link;
    int32_t state, ended;
};

/* ---- building: fragments of a machine with one way in and one way out, joined like bricks ----
 * As in Thompson's construction (CACM 1968) a fragment's way out is a SPLIT that leads nowhere yet; whoever uses the fragment leads it on.
 * So every form is built from four functions, llm__gr_seq, llm__gr_alt, llm__gr_repeat and llm__gr_call, and from sets of bytes. An
 * example, a{2,3}b:
 *
 *   0 SPLIT -> 4 (the way in)     4 REPEAT body 2, min 2, max 3, then 6     6 SPLIT -> 7
 *   2 BYTES {a} -> 3              3 SPLIT -> 5    5 AGAIN 4                 7 BYTES {b} -> 8 (the way out)
 *
 * Walking through "aa" the stack holds one frame (REPEAT 4, count): pushed with 0 on entry, replaced by one with 1 at the first AGAIN, and
 * popped at the second, where the machine is in two places: behind the loop, and, with count 2, in a third turn. */

typedef struct llm__gr_frag {
    int32_t in, out;        /* out: a SPLIT whose next is still open; in -1: nothing can ever match */
} llm__gr_frag;

typedef struct llm__gr_build {
    llm_grammar *g;
    llm_result failed;      /* the first error, whose sentence is llm_last_error */
    int32_t escape;         /* the rule of what follows a backslash in a JSON string; 0: none yet */
} llm__gr_build;

/* The fragment that matches nothing, as [] in a class or `false` in a schema. In a sequence it makes all of it impossible, among
 * alternatives it disappears, and a loop around it can only be left at once. */
static const llm__gr_frag llm__gr_never = {-1, -1};

/* Takes what something costs from what the compilation may cost in all, the machines that are made on the way included. 0: it was not
 * left. Whatever a text can make many of, or long, is paid for where it is met. */
static int llm__gr_spend(llm__gr_build *b, size_t cost) {
    if (!b->failed && (*b->g->fuel -= (int64_t)cost) < 0)
        b->failed = llm__error(LLM_ERR_LIMIT, "grammar: it takes too long to make, a smaller or less ambiguous one expected");
    return !b->failed;
}

/* Appends an instruction and returns its number. After an error it does nothing and returns 0, so builders need not ask after every step:
 * what they then write goes into instruction 0, which is nobody's. a and next mean what the table at llm__gr_kind says; -1:
 * leads nowhere yet. */
static int32_t llm__gr_add(llm__gr_build *b, llm__gr_kind kind, int32_t a, int32_t next) {
    llm_grammar *g = b->g;
    if (!llm__gr_spend(b, 1)) return 0;
    if (g->n_ops >= LLM__GR_MAX_OPS) {
        b->failed = llm__error(LLM_ERR_LIMIT, "grammar: more than %d instructions, a smaller grammar expected", LLM__GR_MAX_OPS);
        return 0;
    }
    if (!llm__grow((void **)&g->op, &g->ops_cap, g->n_ops + 1, sizeof *g->op)) {
        b->failed = llm__nomem();
        return 0;
    }
    llm__gr_op *op = &g->op[g->n_ops];
    memset(op, 0, sizeof *op);
    op->kind = (uint8_t)kind, op->a = a, op->next = next, op->other = -1;
    return (int32_t)g->n_ops++;
}

/* Matches the empty text: a single SPLIT, which is way in and way out at once. */
static llm__gr_frag llm__gr_empty(llm__gr_build *b) {
    llm__gr_frag f;
    f.in = f.out = llm__gr_add(b, LLM__GR_SPLIT, 0, -1);
    return f;
}

/* f, then `then`: the way out of the one leads into the other. */
static llm__gr_frag llm__gr_seq(llm__gr_build *b, llm__gr_frag f, llm__gr_frag then) {
    if (f.in < 0 || then.in < 0) return llm__gr_never;
    b->g->op[f.out].next = then.in;
    f.out = then.out;
    return f;
}

/* Leads what follows a fragment to an instruction. */
static void llm__gr_goto(llm__gr_build *b, llm__gr_frag f, int32_t to) {
    if (f.in >= 0) b->g->op[f.out].next = to;
}

/* f or or_else. Both ways out are led into one new SPLIT, so that the alternative has one way out again:
 *
 *           +-- f --------+
 *   SPLIT --+             +-- SPLIT (out)
 *           +-- or_else --+ */
static llm__gr_frag llm__gr_alt(llm__gr_build *b, llm__gr_frag f, llm__gr_frag or_else) {
    if (f.in < 0) return or_else;
    if (or_else.in < 0) return f;
    int32_t out = llm__gr_add(b, LLM__GR_SPLIT, 0, -1), split = llm__gr_add(b, LLM__GR_SPLIT, 0, f.in);
    b->g->op[split].other = or_else.in;
    b->g->op[f.out].next = b->g->op[or_else.out].next = out;
    f.in = split, f.out = out;
    return f;
}

/* f repeated min to max times (max -1: without end). Only counted loops need frames:
 *
 *   f?      f or nothing            f{0,}   loop: SPLIT -> f -> loop, or out
 *   f{1}    f itself                f{1,}   f -> loop, entered at f
 *   f{2,5}  loop: REPEAT 2..5 -> f -> AGAIN loop; out
 *
 * A loop whose body is impossible matches only the empty text, if that is allowed (min 0). llama.cpp writes x{2,1000} as
 * a thousand copies of x (llama-grammar.cpp); here no count makes a machine larger. */
static llm__gr_frag llm__gr_repeat(llm__gr_build *b, llm__gr_frag f, int32_t min, int32_t max) {
    if (f.in < 0) return min ? f : llm__gr_empty(b);
    if (max == 0) return llm__gr_empty(b);
    if (min == 1 && max == 1) return f;
    if (min == 0 && max == 1) return llm__gr_alt(b, f, llm__gr_empty(b));
    int32_t out = llm__gr_add(b, LLM__GR_SPLIT, 0, -1), loop;
    if (max < 0 && min <= 1) {
        loop = llm__gr_add(b, LLM__GR_SPLIT, 0, f.in);
        b->g->op[loop].other = out;
        b->g->op[f.out].next = loop;
        if (min == 0) f.in = loop;
    } else {
        loop = llm__gr_add(b, LLM__GR_REPEAT, f.in, out);
        int32_t again = llm__gr_add(b, LLM__GR_AGAIN, loop, -1);
        b->g->op[loop].min = min, b->g->op[loop].max = max;
        b->g->op[f.out].next = again;
        f.in = loop;
    }
    f.out = out;
    return f;
}

/* One byte of a set of 256 bits. Equal sets made not long ago are shared: fewer sets, fewer and larger classes of bytes.
 * Only the last 256 are compared, or a grammar of many sets would take the square of its size to build. */
static llm__gr_frag llm__gr_bytes(llm__gr_build *b, const uint32_t set[8]) {
    llm_grammar *g = b->g;
    size_t k = g->n_sets, least = k > 256 ? k - 256 : 0;
    while (k > least && memcmp(g->set[k - 1], set, 32)) k--;
    if (k == least) {
        if (llm__gr_spend(b, 32) && !llm__grow((void **)&g->set, &g->sets_cap, g->n_sets + 1, sizeof *g->set)) b->failed = llm__nomem();
        if (b->failed) return llm__gr_never;
        memcpy(g->set[g->n_sets++], set, 32);
        k = g->n_sets;
    }
    llm__gr_frag f = llm__gr_empty(b);
    f.in = llm__gr_add(b, LLM__GR_BYTES, (int32_t)k - 1, f.out);
    return f;
}

static llm__gr_frag llm__gr_range(llm__gr_build *b, int lo, int hi) {
    uint32_t set[8] = {0, 0, 0, 0, 0, 0, 0, 0};
    for (int c = lo; c <= hi; c++) set[c >> 5] |= 1u << (c & 31);
    return llm__gr_bytes(b, set);
}

static llm__gr_frag llm__gr_text(llm__gr_build *b, llm__str s) {
    llm__gr_frag f = llm__gr_empty(b);
    for (size_t i = 0; i < s.n && !b->failed; i++) f = llm__gr_seq(b, f, llm__gr_range(b, (unsigned char)s.p[i], (unsigned char)s.p[i]));
    return f;
}

/* The same for a text that ends in 0. */
static llm__gr_frag llm__gr_word(llm__gr_build *b, const char *s) { return llm__gr_text(b, llm__lit(s)); }

/* Code points [lo, hi] of one UTF-8 length: split where the continuation bytes would not run from 80 to BF, then byte by byte. U+0400 to
 * U+052F, D0 80 to D4 AF, are not [D0-D4][80-AF], but two boxes:
 *
 *   [D0-D3][80-BF]      U+0400 to U+04FF
 *   D4     [80-AF]      U+0500 to U+052F
 *
 * At most seven boxes for four bytes: up to three cut off at either end, and the middle. (RE2's Compiler::AddRuneRangeUTF8 and
 * Utf8Sequences of Rust's regex-syntax cut in the same places.) */
static llm__gr_frag llm__gr_utf8_range(llm__gr_build *b, int32_t lo, int32_t hi) {
    char first[4], last[4];
    int n = llm__utf8_put(first, lo);
    for (int i = 1; i < n; i++) {
        int32_t low_bits = (1 << (6 * i)) - 1;
        if ((lo & ~low_bits) == (hi & ~low_bits)) continue;
        if (lo & low_bits) return llm__gr_alt(b, llm__gr_utf8_range(b, lo, lo | low_bits), llm__gr_utf8_range(b, (lo | low_bits) + 1, hi));
        if ((hi & low_bits) != low_bits)
            return llm__gr_alt(b, llm__gr_utf8_range(b, lo, (hi & ~low_bits) - 1), llm__gr_utf8_range(b, hi & ~low_bits, hi));
    }
    llm__utf8_put(last, hi);
    llm__gr_frag f = llm__gr_empty(b);
    for (int i = 0; i < n; i++) f = llm__gr_seq(b, f, llm__gr_range(b, (unsigned char)first[i], (unsigned char)last[i]));
    return f;
}

/* Sets of characters, as >>regex keeps them: all that there are; plain text, which may stand in a JSON string as it is. */
static const int32_t llm__gr_all[] = {0, 0x110000};
static const int32_t llm__gr_plain[] = {0x20, 0x22, 0x23, 0x5C, 0x5D, 0x110000};

/* One code point of a set (the n places where membership changes), as UTF-8; surrogates are left out. */
static llm__gr_frag llm__gr_chars(llm__gr_build *b, const int32_t *change, size_t n) {
    static const int32_t edge[] = {0, 0x80, 0x800, 0xD800, 0xE000, 0x10000, 0x110000};
    uint32_t ascii[8] = {0, 0, 0, 0, 0, 0, 0, 0};
    llm__gr_frag f = llm__gr_never;
    int any = 0, wide = 0;
    size_t part = b->g->n_ops;
    for (size_t i = 0; i < n; i += 2) {
        int32_t from = change[i], end = i + 1 < n ? change[i + 1] : 0x110000;
        wide += (from <= 0x80 && end >= 0xD800) + (from <= 0xE000 && end >= 0x110000);
        for (int32_t c = from; c < end && c < 0x80; c++) ascii[c >> 5] |= 1u << (c & 31), any = 1;
        for (int k = 1; k < 6; k++) {
            int32_t lo = LLM__MAX(from, edge[k]), hi = LLM__MIN(end, edge[k + 1]) - 1;
            if (k != 3 && lo <= hi) f = llm__gr_alt(b, f, llm__gr_utf8_range(b, lo, hi));
        }
    }
    if (!any) return f;
    for (; wide == 2 && part < b->g->n_ops; part++) b->g->op[part].part = 1;
    llm__gr_frag one = llm__gr_bytes(b, ascii);
    if (one.in >= 0) b->g->op[one.in].wide = wide == 2;
    return llm__gr_alt(b, one, f);
}

/* One of n byte strings, sorted: a trie, so that a common beginning is one path.
 * s: n > 0 strings that agree in their first `at` bytes; depth: of the recursion, which goes one level down at every fork, not at every
 * byte. For "left", "length", "right", with ends marked by .:
 *
 *   --+-- le --+-- ft .
 *     |        +-- ngth .
 *     +-- right . */
static llm__gr_frag llm__gr_strings(llm__gr_build *b, const llm__str *s, size_t n, size_t at, int depth) {
    size_t from = at;
    while (at < s[0].n && at < s[n - 1].n && s[0].p[at] == s[n - 1].p[at]) at++;
    llm__gr_frag f = llm__gr_text(b, llm__s(s[0].p + from, at - from)), rest = llm__gr_never;
    if (depth > 512 && !b->failed)
        b->failed = llm__error(LLM_ERR_LIMIT, "grammar: strings that begin alike, 512 levels deep, fewer expected");
    for (size_t i = 0, k; i < n && !b->failed; i = k) {
        for (k = i + 1; k < n && s[k].n > at && s[i].n > at && s[k].p[at] == s[i].p[at];) k++;
        if (s[i].n <= at) {
            while (k < n && s[k].n <= at) k++;
            rest = llm__gr_alt(b, rest, llm__gr_empty(b));
        } else {
            rest = llm__gr_alt(b, rest, llm__gr_strings(b, s + i, k - i, at, depth + 1));
        }
    }
    return llm__gr_seq(b, f, rest);
}

/* One more way from a place, a SPLIT whose `other` lists its ways and whose `next` is free. */
static void llm__gr_way(llm__gr_build *b, int32_t place, int32_t in) {
    int32_t split = llm__gr_add(b, LLM__GR_SPLIT, 0, in);
    b->g->op[split].other = b->g->op[place].other;
    b->g->op[place].other = split;
}

/* A rule: a place to call that is filled later, so that rules may call themselves. */
static int32_t llm__gr_rule(llm__gr_build *b) { return llm__gr_add(b, LLM__GR_SPLIT, 0, -1); }

static void llm__gr_rule_is(llm__gr_build *b, int32_t rule, llm__gr_frag body) {
    int32_t end = llm__gr_add(b, LLM__GR_RETURN, 0, -1);
    b->g->op[rule].next = body.in;
    llm__gr_goto(b, body, end);
}

/* Runs a rule here. Fragments are used once, rules as often as one likes.
 * A fragment has one way out, which two users would both lead on; a rule comes back to whoever called it. */
static llm__gr_frag llm__gr_call(llm__gr_build *b, int32_t rule) {
    llm__gr_frag f = llm__gr_empty(b);
    f.in = llm__gr_add(b, LLM__GR_CALL, rule, f.out);
    return f;
}

/* ---- the machine ----
 * A step takes all threads of a state that consume the byte and follows what consumes nothing (the closure) until only BYTES are left:
 *
 *   state --byte--> threads behind their BYTES --llm__gr_follow--> threads before the next BYTES --sorted, numbered--> state
 *
 * An example, the schema {"type": "array", "items": {"$ref": "#"}} (lists of lists of lists ...) while it reads [[]]. C is the CALL of the
 * whole, I the CALL of an item within the rule of a list; stacks are written from the bottom to the top:
 *
 *   read     threads: what may come, on which stack
 *            [ on C
 *   [        space or ] on C        [ on C I            the list may end, or an item begins: the CALL of an item is followed at once
 *   [[       space or ] on C I      [ on C I I
 *   [[]      space , ] on C                             ] ended the inner list: RETURN popped I, behind which stand , and ]
 *   [[]]     none; accepts                              RETURN popped C too, and ACCEPT stands behind it
 *
 * What has been read is in the stacks, so one list of instructions reads any depth, up to LLM__GR_MAX_DEPTH frames; what would go deeper
 * is not allowed to begin.
 *
 * The work list of a step holds what was met, in order; it is its own queue. Everything is bounded: the list, the threads of a state, the
 * depth of a stack. An answer that goes beyond ends with a sentence; others that use its grammar go on. */

/* The n bytes that tell entry i of an index's array from others. Two stacks are equal if their top frames are, since `parent` is a number too:
 * a whole stack is compared by three integers. The work of a step: a thread, and how much of its stack is new. A set of threads is stored
 * sorted, so equal sets are equal memory. */
static const void *llm__gr_key(const llm_grammar *g, const llm__gr_index *x, size_t i, size_t *n) {
    *n = x == &g->frames_at ? offsetof(llm__gr_frame, depth) : x == &g->work_at ? offsetof(llm__gr_met, base) : sizeof g->mask->key;
    if (x == &g->states_at) *n = (size_t)g->state[i].n * sizeof *g->thread;
    if (x == &g->states_at) return g->thread + g->state[i].from;
    return x == &g->frames_at ? (const void *)&g->frame[i] : x == &g->work_at ? (const void *)&g->work[i] : (const void *)g->mask[i].key;
}

/* The number of entry n, which has just been written behind n others that all differ: n, and it has a place now, or that of the one it is
 * equal to, and the caller forgets the new one. -1: no memory, or g->looking and it is new. A quarter of the slots stays free. */
static int32_t llm__gr_find(llm_grammar *g, llm__gr_index *x, size_t n) {
    if (4 * (n + 1) > 3 * x->cap) {
        size_t cap = x->cap ? 2 * x->cap : 256;
        int32_t *slot = LLM__NEW(int32_t, cap);
        if (!slot) return g->failed = "out of memory", -1;
        LLM_FREE(x->slot);
        x->slot = slot, x->cap = cap;
        for (size_t i = 0; i < n; i++) (void)llm__gr_find(g, x, i);
    }
    size_t len, other, at;
    const void *key = llm__gr_key(g, x, n, &len), *there;
    for (at = (size_t)llm__hash(key, len, 0) & (x->cap - 1); x->slot[at]; at = (at + 1) & (x->cap - 1)) {
        there = llm__gr_key(g, x, (size_t)x->slot[at] - 1, &other);
        if (len == other && !memcmp(key, there, len)) break;
    }
    if (!x->slot[at] && !g->looking) x->slot[at] = (int32_t)n + 1;
    return x->slot[at] - 1;
}

/* Empties an index. One that has grown large once is not worth clearing before each step. */
static void llm__gr_index_clear(llm__gr_index *x) {
    if (x->cap > 1 << 14) LLM_FREE(x->slot), x->slot = NULL, x->cap = 0;
    if (x->cap) memset(x->slot, 0, x->cap * sizeof *x->slot);
}

/* The frame (op, count) on top of `parent`; -1: too deep, or no memory. */
static int32_t llm__gr_push(llm_grammar *g, int32_t parent, int32_t op, int32_t count) {
    int32_t depth = parent < 0 ? 0 : g->frame[parent].depth + 1;
    if (depth > LLM__GR_MAX_DEPTH) return -1;
    if (!llm__grow((void **)&g->frame, &g->frames_cap, g->n_frames + 1, sizeof *g->frame)) return g->failed = "out of memory", -1;
    llm__gr_frame *f = &g->frame[g->n_frames];
    f->op = op, f->count = count, f->parent = parent, f->depth = depth;
    int32_t at = llm__gr_find(g, &g->frames_at, g->n_frames);
    g->n_frames += at == (int32_t)g->n_frames;
    return at;
}

static const char llm__gr_too_many[] = "too many ways to read the text so far, a less ambiguous grammar expected";

/* Adds (op, frame) to the work of this step unless it is there. A frame of -1 (a push that was refused), an instruction from which nothing
 * leads to the end, and joints (SPLIT with one way) are not worth a place: that is where a stack too deep and a dead end become "not
 * allowed". `base`: the least depth the stack had on the way here within the step; frames above it were
 * pushed since the last byte. That tells a turn of a loop that consumed nothing: it ends the loop, or it would go on for ever.
 *
 * (a?){1000} shows why. Before any byte a turn could be empty, and another, and a thousand of them: with frames that count, those are a
 * thousand different threads. But if one turn may be empty, all that are left may be, so an empty turn leaves the loop, whatever the count
 * says, and never starts another. `fresh` belongs to what makes two entries equal, because the same frame (its number is its contents) may
 * be met as an old one, whose turn consumed something, and as one that was pushed in this step, whose turn did not. */
static void llm__gr_meet(llm_grammar *g, int32_t op, int32_t frame, int32_t base) {
    while (op >= 0 && g->op[op].kind == LLM__GR_SPLIT && g->op[op].other < 0) op = g->op[op].next;
    if (frame < 0 || op < 0 || !g->op[op].alive || g->failed) return;
    if ((*g->fuel -= LLM__GR_MEET) < 0 || g->n_work >= LLM__GR_MAX_WORK) {
        g->failed = llm__gr_too_many;
        return;
    }
    if (!llm__grow((void **)&g->work, &g->work_cap, g->n_work + 1, sizeof *g->work)) {
        g->failed = "out of memory";
        return;
    }
    llm__gr_met *m = &g->work[g->n_work];
    m->at.op = op, m->at.frame = frame;
    m->base = LLM__MIN(base, g->frame[frame].depth);
    m->fresh = g->frame[frame].depth - m->base;
    g->n_work += llm__gr_find(g, &g->work_at, g->n_work) == (int32_t)g->n_work;
}

/* One turn of a loop is over: another, or out. `frame` is that of the REPEAT, with the turns done before; it is replaced by one with the
 * new count, or popped. For x{2,} counts stop at 2: beyond the minimum every count means the same, and one state serves all. */
static void llm__gr_again(llm_grammar *g, int32_t frame, int32_t base) {
    llm__gr_frame f = g->frame[frame];
    const llm__gr_op *r = &g->op[f.op];
    int32_t done = f.count + 1, nothing = f.depth > base;
    if (r->max < 0) done = LLM__MIN(done, r->min);
    if (done >= r->min || nothing) llm__gr_meet(g, r->next, f.parent, base);
    if ((r->max < 0 || done < r->max) && !nothing) {
        base = LLM__MIN(base, f.depth - 1);
        llm__gr_meet(g, r->a, llm__gr_push(g, f.parent, f.op, done), base);
    }
}

/* Follows everything that consumes nothing from the threads met, to the BYTES where the next byte decides. The epsilon closure of
 * textbooks, with stacks. The loop ends because work is never added twice and stacks are bounded. */
static void llm__gr_follow(llm_grammar *g) {
    for (size_t i = 0; i < g->n_work && !g->failed; i++) {
        llm__gr_thread t = g->work[i].at;
        int32_t base = g->work[i].base;
        const llm__gr_op op = g->op[t.op];
        if (op.kind == LLM__GR_SPLIT) {
            llm__gr_meet(g, op.next, t.frame, base);
            llm__gr_meet(g, op.other, t.frame, base);
        } else if (op.kind == LLM__GR_CALL) {
            /* A call that is the last thing of a rule needs no frame: whoever called the rule is whom to return to. So rules that repeat
             * by calling themselves at their end (s ::= "a" s | "b") read texts of any length. Joints may stand before the RETURN. */
            int32_t after = op.next;
            while (after >= 0 && g->op[after].kind == LLM__GR_SPLIT && g->op[after].other < 0) after = g->op[after].next;
            int last = after >= 0 && g->op[after].kind == LLM__GR_RETURN && !g->every_frame;
            llm__gr_meet(g, op.a, last ? t.frame : llm__gr_push(g, t.frame, t.op, 0), base);
        } else if (op.kind == LLM__GR_RETURN && t.frame > 0) { /* at the bottom only where llm__gr_check_left tries a rule alone */
            llm__gr_meet(g, g->op[g->frame[t.frame].op].next, g->frame[t.frame].parent, base);
        } else if (op.kind == LLM__GR_REPEAT) {
            if (!op.min) llm__gr_meet(g, op.next, t.frame, base);
            llm__gr_meet(g, op.a, llm__gr_push(g, t.frame, t.op, 0), base);
        } else if (op.kind == LLM__GR_AGAIN) {
            llm__gr_again(g, t.frame, base);
        }
    }
}

/* By instruction, then by stack: any total order would do, as long as equal sets are sorted into equal memory. */
static int llm__gr_thread_order(const void *a, const void *b) {
    const llm__gr_thread *x = (const llm__gr_thread *)a, *y = (const llm__gr_thread *)b;
    return x->op != y->op ? (x->op > y->op) - (x->op < y->op) : (x->frame > y->frame) - (x->frame < y->frame);
}

/* The number of the state made of the threads at BYTES and ACCEPT in the work of this step; 0: dead (also when something failed). The
 * threads are written behind those of the last state, where they stay if the state is new; if it is not, the next one overwrites them.
 */
static int32_t llm__gr_intern(llm_grammar *g) {
    size_t row = (size_t)g->n_classes;
    int32_t n = 0, kept = 0, accept = 0;
    if (!llm__grow((void **)&g->thread, &g->threads_cap, g->n_threads + g->n_work, sizeof *g->thread) ||
        !llm__grow((void **)&g->state, &g->states_cap, g->n_states + 1, sizeof *g->state) ||
        !llm__grow((void **)&g->to, &g->to_cap, (g->n_states + 1) * row, sizeof *g->to))
        g->failed = "out of memory";
    if (g->failed) return 0;
    llm__gr_thread *t = g->thread + g->n_threads;
    for (size_t i = 0; i < g->n_work; i++) {
        int kind = g->op[g->work[i].at.op].kind;
        if (kind == LLM__GR_BYTES || kind == LLM__GR_ACCEPT) t[n++] = g->work[i].at;
        accept |= kind == LLM__GR_ACCEPT;
    }
    if (!n) return 0;
    qsort(t, (size_t)n, sizeof *t, llm__gr_thread_order);
    for (int32_t i = 0; i < n; i++)
        if (!kept || llm__gr_thread_order(&t[kept - 1], &t[i])) t[kept++] = t[i];
    if (kept > LLM__GR_MAX_THREADS) return g->failed = llm__gr_too_many, 0;
    llm__gr_state *s = &g->state[g->n_states];
    s->from = (int32_t)g->n_threads, s->n = kept, s->accept = accept;
    int32_t at = llm__gr_find(g, &g->states_at, g->n_states);
    if (at < (int32_t)g->n_states) return LLM__MAX(at, 0);
    memset(g->to + g->n_states++ * row, 0xFF, row * sizeof *g->to);
    g->n_threads += (size_t)kept;
    return at;
}

static void llm__gr_work_clear(llm_grammar *g) {
    g->n_work = 0;
    llm__gr_index_clear(&g->work_at);
}

/* The state after a byte of class k. All bytes of a class lead to one place, so any of them stands for it. INT32_MAX: the stack has not
 * been lower in this step, as the step begins here; llm__gr_meet cuts it to the depth of the frame. */
static int32_t llm__gr_step_new(llm_grammar *g, int32_t state, int32_t k) {
    llm__gr_state s = g->state[state];
    int byte = g->class_byte[k];
    llm__gr_work_clear(g);
    for (int32_t i = 0; i < s.n; i++) {
        llm__gr_thread t = g->thread[s.from + i];
        const llm__gr_op *op = &g->op[t.op];
        if (g->set[op->a][byte >> 5] >> (byte & 31) & 1) llm__gr_meet(g, op->next, t.frame, INT32_MAX);
    }
    llm__gr_follow(g);
    int32_t to = llm__gr_intern(g);
    return g->failed ? 0 : (g->to[(size_t)state * (size_t)g->n_classes + (size_t)k] = to);
}

/* The state after a byte, 0 if there is none: a look-up in nearly all cases. The dead state's row is all 0, so it leads to itself. */
LLM__INLINE int32_t llm__gr_step(llm_grammar *g, int32_t state, uint8_t byte) {
    int32_t to = g->to[(size_t)state * (size_t)g->n_classes + g->class_of[byte]];
    return to >= 0 ? to : llm__gr_step_new(g, state, g->class_of[byte]);
}

/* States, from nothing: the dead one and that of the empty text.
 * Frame 0, the bottom of every stack, is no CALL and no REPEAT: nothing returns to it, since the start is no rule. */
static void llm__gr_begin(llm_grammar *g) {
    g->n_frames = g->n_threads = g->n_states = 0;
    llm__gr_index_clear(&g->frames_at);
    llm__gr_index_clear(&g->states_at);
    llm__gr_work_clear(g);
    llm__gr_push(g, -1, -1, 0);
    if (!llm__grow((void **)&g->state, &g->states_cap, 1, sizeof *g->state) ||
        !llm__grow((void **)&g->to, &g->to_cap, (size_t)g->n_classes, sizeof *g->to))
        g->failed = "out of memory";
    if (g->failed) return;
    memset(&g->state[0], 0, sizeof *g->state);
    memset(g->to, 0, (size_t)g->n_classes * sizeof *g->to);
    g->n_states = 1;
    llm__gr_meet(g, g->start, 0, 0);
    llm__gr_follow(g);
    (void)llm__gr_intern(g);
}

/* Forgets all states but those of running answers, when they take too much memory: pushes their stacks anew. Matchers hold numbers of states,
 * which mean something else afterwards, so each gets its new one here. Masks stay: their keys are made of instructions and counts, not of
 * numbers of frames and states. */
static void llm__gr_trim(llm_grammar *g) {
    if (g->n_states * (size_t)g->n_classes * 4 + g->n_threads * sizeof *g->thread + g->n_frames * sizeof *g->frame < LLM__GR_STATE_BYTES)
        return;
    llm__gr_frame *frame = g->frame;
    llm__gr_thread *thread = g->thread;
    llm__gr_state *state = g->state;
    int32_t stack[LLM__GR_MAX_DEPTH + 1];
    g->frame = NULL, g->thread = NULL, g->state = NULL;
    g->frames_cap = g->threads_cap = g->states_cap = 0;
    llm__gr_begin(g);
    for (struct llm_matcher *m = g->matchers; m; m = m->next) {
        llm__gr_work_clear(g);
        for (int32_t i = 0; i < state[m->state].n && !g->failed; i++) {
            llm__gr_thread t = thread[state[m->state].from + i];
            int32_t n = 0, at = 0;
            for (int32_t f = t.frame; f > 0; f = frame[f].parent) stack[n++] = f;
            while (n-- > 0) at = llm__gr_push(g, at, frame[stack[n]].op, frame[stack[n]].count);
            llm__gr_meet(g, t.op, at, INT32_MAX);
        }
        m->state = llm__gr_intern(g); /* 0, dead, if that fails */
    }
    LLM_FREE(frame);
    LLM_FREE(thread);
    LLM_FREE(state);
}

