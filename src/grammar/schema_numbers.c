#include "grammar/schema_numbers.h"
#include "api/config.h"
#include "api/json.h"
#include "base/platform.h"
#include "base/alloc.h"
#include "base/log.h"
#include "base/text.h"
#include "base/json.h"
#include "grammar/machine.h"
#include "grammar/schema.h"

static llm__gr_frag llm__js_digits(llm__gr_build *b, int32_t min, int32_t max) {
    return llm__gr_repeat(b, llm__gr_range(b, '0', '9'), min, max);
}

/* Most digits after the point; digits of a bound on either side of it; digits before the point where no bound says it, and if remainders
 * are kept; the largest divisor. */
enum { LLM__JS_PLACES = 15, LLM__JS_WHOLE = 40, LLM__JS_DIGITS = 18, LLM__JS_SOME_DIGITS = 9, LLM__JS_MULTIPLE = 1000 };

/* A bound of a number in decimal: |value| = whole.part, digits without leading or trailing zeros. */
typedef struct llm__js_bound {
    int there, negative, open; /* open: the bound itself is excluded */
    char whole[LLM__JS_WHOLE + 1], part[LLM__JS_WHOLE + 1];
} llm__js_bound;

/* Numbers that are multiples of `multiple` times 10^-places between lo and hi (NULL: no bound), without a sign. */
typedef struct llm__js_decimal {
    llm__gr_build *b;
    const llm__js_bound *lo, *hi;
    int32_t whole, places; /* most digits before and after the point */
    int32_t multiple;
    int32_t *at; /* the instruction that goes on from a reading, see llm__js_known; 0: none yet */
    int32_t end;
} llm__js_decimal;

/* All that must be known of a number of which a part is read. */
typedef struct llm__js_reading {
    int behind;        /* the point is read */
    int32_t n;         /* digits read before the point, or behind it; before it -1: nothing is read, 0: "0" is */
    int lo, hi;        /* the digits compared with those of the bounds: -1, 0, 1 */
    int32_t remainder; /* of all digits as a number, by x->multiple */
} llm__js_reading;

/* The comparison c with a bound's digits, one digit later: only the first difference counts. Behind its last digit the bound has zeros. */
static int llm__js_compare(const char *digits, int32_t at, int c, int digit) {
    int other = at < (int32_t)strlen(digits) ? digits[at] - '0' : 0;
    return c ? c : (digit > other) - (digit < other);
}

/* The comparison of whole parts of which one has ended with n digits: more digits are more. */
static int llm__js_compare_ended(const llm__js_bound *bound, int32_t n, int c) {
    int32_t len = bound ? (int32_t)strlen(bound->whole) : n;
    return n == len ? c : n < len ? -1 : 1;
}

/* 1 if a number that ends with k digits behind the point is on the right side (1: above, -1: below) of a bound. */
static int llm__js_within(const llm__js_bound *bound, int32_t k, int c, int side) {
    if (bound && !c && k < (int32_t)strlen(bound->part)) c = -1;
    return !bound || c == side || (!c && !bound->open);
}

/* The instruction that goes on from a reading; 0: it was not made yet. */
static int32_t *llm__js_known(const llm__js_decimal *x, const llm__js_reading *r) {
    int32_t read = 1 + (r->behind ? x->whole + 1 + r->n : r->n);
    return &x->at[((read * 3 + r->lo + 1) * 3 + r->hi + 1) * x->multiple + r->remainder];
}

/* The comparison with a bound if the number's whole part ends here, or has ended. */
static int llm__js_side(const llm__js_reading *r, const llm__js_bound *bound, int c) {
    return r->behind ? c : llm__js_compare_ended(bound, LLM__MAX(r->n, 0), c);
}

/* 1 if a number may end here: it has digits, lies within the bounds and, with zeros behind it, is a multiple. */
static int llm__js_may_end(const llm__js_decimal *x, const llm__js_reading *r) {
    int32_t k = r->behind ? r->n : 0;
    int64_t scaled = r->remainder;
    if (r->behind ? !r->n : r->n < 0) return 0;
    for (int32_t i = k; i < x->places; i++) scaled = scaled * 10 % x->multiple;
    return !scaled && llm__js_within(x->lo, k, llm__js_side(r, x->lo, r->lo), 1) &&
           llm__js_within(x->hi, k, llm__js_side(r, x->hi, r->hi), -1);
}

/* 1 if digits are as one likes from here on. */
static int llm__js_is_free(const llm__js_decimal *x, const llm__js_reading *r) {
    int32_t n_lo = x->lo ? (int32_t)strlen(x->lo->whole) : 0;
    int free_lo = !x->lo || (r->lo > 0 && (r->behind || r->n >= n_lo)), free_hi = !x->hi || r->hi < 0;
    return (r->behind || r->n > 0) && x->multiple == 1 && free_lo && free_hi;
}

/* The reading after one more digit; 0: none may follow. */
static int llm__js_after(const llm__js_decimal *x, const llm__js_reading *r, int digit, llm__js_reading *to) {
    const llm__js_reading zero = {0, 0, 0, 0, 0};
    int32_t n = LLM__MAX(r->n, 0), n_lo = x->lo ? (int32_t)strlen(x->lo->whole) : 0;
    *to = zero;
    if (r->n < 0 && !digit) return 1; /* nothing but the point follows a leading zero */
    if (r->behind ? n >= x->places : !r->n || n >= x->whole) return 0;
    to->behind = r->behind;
    to->n = n + 1;
    to->remainder = (int32_t)(((int64_t)r->remainder * 10 + digit) % x->multiple);
    if (x->hi) to->hi = llm__js_compare(r->behind ? x->hi->part : x->hi->whole, n, r->hi, digit);
    if (x->lo && !r->behind && n >= n_lo) to->lo = 1;
    else if (x->lo) to->lo = llm__js_compare(r->behind ? x->lo->part : x->lo->whole, n, r->lo, digit);
    return 1;
}

static int32_t llm__js_go_on(llm__js_decimal *x, const llm__js_reading *r);

/* The ways from a reading by each digit; neighbours that lead to the same instruction are one way. */
static void llm__js_digit_ways(llm__js_decimal *x, const llm__js_reading *r, int32_t here) {
    int32_t to[11];
    for (int d = 0; d <= 9; d++) {
        llm__js_reading next;
        to[d] = llm__js_after(x, r, d, &next) ? llm__js_go_on(x, &next) : -1;
    }
    to[10] = -2;
    for (int d = 0, from = 0; d <= 9; d++) {
        if (to[d] == to[d + 1]) continue;
        llm__gr_frag f = to[d] >= 0 ? llm__gr_range(x->b, '0' + from, '0' + d) : llm__gr_never;
        llm__gr_goto(x->b, f, to[d]);
        if (f.in >= 0) llm__gr_way(x->b, here, f.in);
        from = d + 1;
    }
}

/* The instruction that goes on from a reading; -1: it is out of bounds. */
static int32_t llm__js_go_on(llm__js_decimal *x, const llm__js_reading *r) {
    llm__gr_build *b = x->b;
    int32_t n = LLM__MAX(r->n, 0);
    if ((x->hi && r->hi > 0 && (r->behind || n >= x->whole)) || (x->lo && r->lo < 0 && r->behind)) return -1;
    int32_t *known = llm__js_known(x, r), here = *known;
    if (here || b->failed) return here;
    here = *known = llm__gr_add(b, LLM__GR_SPLIT, 0, -1);
    if (llm__js_may_end(x, r)) b->g->op[here].next = x->end;
    if (llm__js_is_free(x, r)) {
        llm__gr_frag f = llm__js_digits(b, r->behind && !n, r->behind ? x->places - n : x->whole - n),
                     part = llm__js_digits(b, 1, x->places);
        if (!r->behind && x->places) f = llm__gr_seq(b, f, llm__gr_repeat(b, llm__gr_seq(b, llm__gr_word(b, "."), part), 0, 1));
        llm__gr_goto(b, f, x->end);
        llm__gr_way(b, here, f.in);
        return here;
    }
    llm__js_digit_ways(x, r, here);
    const llm__js_reading behind = {1, 0, llm__js_side(r, x->lo, r->lo), llm__js_side(r, x->hi, r->hi), r->remainder};
    int32_t point = !r->behind && r->n >= 0 && x->places ? llm__js_go_on(x, &behind) : -1;
    llm__gr_frag f = point >= 0 ? llm__gr_word(b, ".") : llm__gr_never;
    llm__gr_goto(b, f, point);
    if (f.in >= 0) llm__gr_way(b, here, f.in);
    return here;
}

/* Numbers at or above 0 between the bounds (NULL: none), without a sign. Without an upper one they have at most 18 digits before the point,
 * or one more than the lower one has. */
static llm__gr_frag llm__js_unsigned(llm__js *js, const llm__js_bound *lo, const llm__js_bound *hi, int32_t places, int32_t multiple) {
    llm__js_decimal x = {js->b, lo, hi, 0, places, multiple, NULL, 0};
    llm__gr_frag f = llm__gr_empty(js->b);
    x.end = f.out;
    x.whole = hi ? (int32_t)strlen(hi->whole)
                 : LLM__MAX((lo ? (int32_t)strlen(lo->whole) : 0) + 1, multiple > 1 ? LLM__JS_SOME_DIGITS : LLM__JS_DIGITS);
    const llm__js_reading nothing = {0, -1, 0, 0, 0};
    const size_t n_readings = 9 * (size_t)((x.whole + places + 3) * multiple);
    if (!llm__gr_spend(js->b, n_readings / 16)) return llm__gr_never;
    x.at = LLM__NEW(int32_t, n_readings);
    if (!x.at) js->b->failed = llm__nomem();
    else f.in = llm__js_go_on(&x, &nothing);
    LLM_FREE(x.at);
    return js->b->failed ? llm__gr_never : f;
}

/* A bound from its text: digits, point, exponent. 0: more digits than can be kept. By text, not by double: 0.1 has no double, and what is
 * compared with is text too. -1.50e1 becomes negative, whole "15", part "". */
static int llm__js_bound_read(llm__str s, llm__js_bound *out) {
    char digits[2 * LLM__JS_WHOLE + 2];
    const int64_t most = (int64_t)1 << 40; /* more than any number has digits */
    int64_t exponent = 0;
    int n_digits = 0, point = 0, seen = 0;
    size_t i = 0;
    out->negative = s.n && s.p[0] == '-';
    for (i += (size_t)out->negative; i < s.n && s.p[i] != 'e' && s.p[i] != 'E'; i++) {
        if (s.p[i] == '.') {
            seen = 1;
            continue;
        }
        if (n_digits || s.p[i] != '0') {
            if (n_digits >= 2 * LLM__JS_WHOLE) return 0;
            digits[n_digits++] = s.p[i];
        }
        if (seen) point--;
    }
    if (i < s.n) exponent = strtoll(s.p + i + 1, NULL, 10);
    exponent = LLM__MAX(LLM__MIN(exponent, most), -most);
    while (n_digits && digits[n_digits - 1] == '0') n_digits--, point++;
    if (!n_digits) point = 0, exponent = 0, out->negative = 0;
    exponent += n_digits + point; /* digits before the point */
    if (exponent > LLM__JS_WHOLE || exponent < -LLM__JS_PLACES || n_digits - exponent > LLM__JS_WHOLE) return 0;
    int whole = 0, part = 0;
    for (int64_t k = exponent; k < 0; k++) out->part[part++] = '0';
    for (int k = 0; k < n_digits || k < exponent; k++) {
        char c = k < n_digits ? digits[k] : '0';
        if (k < exponent) out->whole[whole++] = c;
        else out->part[part++] = c;
    }
    out->whole[whole] = out->part[part] = 0;
    out->there = 1;
    return 1;
}

/* The tightest of minimum and exclusiveMinimum (or the maxima) over all members; .there 0: none. Of two that are equal the open one is
 * tighter. In draft-04 exclusiveMinimum was a boolean that made `minimum` open; many schemas still say it so. */
static llm__js_bound llm__js_limit(llm__js *js, const llm__js_view *v, const char *key, const char *open_key, int upper) {
    llm__js_bound best = LLM__ZERO;
    double best_value = 0, value;
    for (int i = 0; i < 2 * v->n; i++) {
        int open = i & 1, at = llm__js_find(js, v, i / 2, open ? open_key : key), also;
        llm__js_bound one = LLM__ZERO;
        one.open = open;
        if (at < 0 || (open && llm_json_bool(js->doc, at, &also))) continue; /* draft-04: a boolean beside the bound */
        if (!open && llm_json_bool(js->doc, llm__js_find(js, v, i / 2, open_key), &also)) one.open = also;
        if (!llm_json_num(js->doc, at, &value))
            llm__js_refuse(js, LLM_ERR_FORMAT, v->node[i / 2], open ? open_key : key, "a number expected");
        else if (!llm__js_bound_read(llm__json_raw(js->doc, at), &one))
            llm__js_refuse(js, LLM_ERR_UNSUPPORTED, v->node[i / 2], open ? open_key : key, "a bound of at most 40 digits expected");
        else if (!best.there || (upper ? value < best_value : value > best_value) || (value == best_value && open))
            best = one, best_value = value;
    }
    return best;
}

/* The least common multiple of all multipleOf, as *multiple times 10^-places; *multiple 1 and LLM__JS_PLACES if there is none. Returns
 * places: of integers 0, as they are multiples of 1 too. */
static int32_t llm__js_multiple(llm__js *js, const llm__js_view *v, int integer, int32_t *multiple) {
    int32_t places = integer ? 0 : LLM__JS_PLACES;
    int64_t all = integer; /* 0: nothing is said */
    for (int i = 0; i < v->n; i++) {
        int at = llm__js_find(js, v, i, "multipleOf");
        double value;
        llm__js_bound m = LLM__ZERO;
        if (at < 0) continue;
        if (!llm_json_num(js->doc, at, &value) || !(value > 0))
            return llm__js_refuse(js, LLM_ERR_FORMAT, v->node[i], "multipleOf", "a number above 0 expected"), 0;
        int64_t one = 0, scale = 1;
        int readable = llm__js_bound_read(llm__json_raw(js->doc, at), &m) && strlen(m.whole) < 5 && strlen(m.part) < LLM__JS_PLACES;
        int32_t part = (int32_t)strlen(m.part), common = all ? LLM__MAX(part, places) : part;
        for (const char *d = m.whole; readable && *d; d++) one = one * 10 + *d - '0';
        for (int32_t k = 0; readable && k < common; k++) one = one * 10 + (k < part ? m.part[k] - '0' : 0);
        for (int32_t k = places; all && k < common; k++) scale *= 10;
        int64_t a = one, b = LLM__MAX(all, 1) * scale; /* of all so far, in units of 10^-common */
        for (int64_t rest; all && b; a = b, b = rest) rest = a % b;
        readable &= one > 0 && (!all || (double)(one / LLM__MAX(a, 1)) * (double)all * (double)scale < 1e18);
        if (readable && all) one = one / a * all * scale;
        for (places = common; places && one % 10 == 0; places--) one /= 10;
        all = one;
        if (!readable || one > LLM__JS_MULTIPLE)
            return llm__js_refuse(js, LLM_ERR_UNSUPPORTED, v->node[i], "multipleOf",
                                  "a number of at most 1000 units of its last digit expected"),
                   0;
    }
    *multiple = (int32_t)LLM__MAX(all, 1);
    return places;
}

LLM__PRIVATE llm__gr_frag llm__js_number(llm__js *js, const llm__js_view *v, int integer) {
    llm__gr_build *b = js->b;
    llm__js_bound lo = llm__js_limit(js, v, "minimum", "exclusiveMinimum", 0), hi = llm__js_limit(js, v, "maximum", "exclusiveMaximum", 1);
    static const llm__js_bound above_zero = {1, 0, 1, "", ""};
    int32_t multiple = 1, places = llm__js_multiple(js, v, integer, &multiple);
    if (b->failed) return llm__gr_never;
    llm__gr_frag f = llm__gr_never, negative = llm__gr_never;
    if (!hi.there || !hi.negative) f = llm__js_unsigned(js, lo.there && !lo.negative ? &lo : NULL, hi.there ? &hi : NULL, places, multiple);
    if (!lo.there || lo.negative) /* mirrored: -x for x between what the bounds say of x; never -0 */
        negative = llm__js_unsigned(js, hi.there && hi.negative ? &hi : &above_zero, lo.there ? &lo : NULL, places, multiple);
    f = llm__gr_alt(b, f, llm__gr_seq(b, llm__gr_word(b, "-"), negative));
    if (lo.there || hi.there || places < LLM__JS_PLACES || f.in < 0) return f;
    llm__gr_frag e = llm__gr_alt(b, llm__gr_word(b, "e"), llm__gr_word(b, "E")),
                 sign = llm__gr_alt(b, llm__gr_word(b, "+"), llm__gr_word(b, "-"));
    e = llm__gr_seq(b, e, llm__gr_repeat(b, sign, 0, 1));
    return llm__gr_seq(b, f, llm__gr_repeat(b, llm__gr_seq(b, e, llm__js_digits(b, 1, 2)), 0, 1));
}
