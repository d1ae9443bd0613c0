#include "serve/openai_media.h"
#include "api/config.h"
#include "api/text.h"
#include "api/easy.h"
#include "api/model.h"
#include "api/media.h"
#include "api/json.h"
#include "api/openai.h"
#include "base/platform.h"
#include "base/alloc.h"
#include "base/log.h"
#include "base/text.h"
#include "base/files.h"
#include "base/json.h"
#include "chat/reasoning.h"
#include "vision/picture.h"
#include "vision/tower_kinds.h"
#include "vision/vision.h"
#include "vision/fit.h"
#include "serve/fetch.h"
#include "serve/film.h"
#include "serve/openai.h"

/* ---- Where bytes come from ---- */

/* The bytes that a data URI holds. Of video/jpeg there are several pictures, one after the other with a comma between: *n of them, whose
 * ends go to `ends`. */
static int llm__oai_data_uri(llm_openai_call *k, llm__str uri, llm_text *out, llm_tokens *ends) {
    const size_t comma = llm__str_until(uri, ",");
    const llm__str head = llm__s(uri.p, comma);
    const int frames = llm__starts(head, llm__lit("data:video/jpeg"));
    if (comma == uri.n || !llm__str_find(head, llm__lit(";base64"))) return llm__oai_bad(k, NULL, ": a data URI with ;base64, expected");
    for (llm__str rest = llm__str_from(uri, comma + 1);;) {
        const size_t n = frames ? llm__str_until(rest, ",") : rest.n;
        if (ends->len == LLM__OAI_FRAMES) return llm__oai_bad(k, NULL, ": more than %d frames", LLM__OAI_FRAMES);
        if (!llm__base64(llm__s(rest.p, n), out) || out->failed)
            return out->failed ? llm__oai_failed(k, llm__nomem(), NULL) : llm__oai_bad(k, NULL, ": the data URI's base64 is malformed");
        if (out->len > INT32_MAX / 2) return llm__oai_bad(k, NULL, ": over 1 GB");
        llm_tokens_add(ends, (int32_t)out->len);
        if (n == rest.n) return ends->failed ? llm__oai_failed(k, llm__nomem(), NULL) : 1;
        rest = llm__str_from(rest, n + 1);
    }
}

/* A file in the folder that the operator allows, by a name in it or by its whole path. */
static int llm__oai_local_file(llm_openai_call *k, llm__str name, llm_text *out) {
    const char *folder = k->service.media_path;
    LLM__SCOPED(llm__file_close) llm__file f = LLM__ZERO;
    if (!folder) return llm__oai_bad(k, NULL, ": files are read only where --allowed-local-media-path allows it");
    if (llm__starts(name, llm__lit("//"))) name = llm__str_from(name, 2);
    LLM__SCOPED(llm__drop) char *plain = llm__strndup(name.p, name.n);
    if (!plain) return llm__oai_failed(k, llm__nomem(), NULL);
    size_t len = strlen(folder);
    while (len && folder[len - 1] == '/') len--; /* of "/" nothing is left, and every whole path begins so */
    const int inside = plain[0] == '/' ? !strncmp(plain, folder, len) && plain[len] == '/' : 1;
    if (!inside || strlen(plain) != name.n || !name.n || strstr(plain, ".."))
        return llm__oai_bad(k, NULL, ": the file is not in the folder that is allowed");
    LLM__SCOPED(llm__drop) char *path = plain[0] == '/' ? llm__strdup(plain) : llm__path_join(folder, plain);
    llm_result r = path ? llm__file_open(path, (size_t)1 << 30, 1, &f) : llm__nomem();
    if (r == LLM_ERR_NOMEM) return llm__oai_failed(k, r, NULL);
    if (r)
        return llm__oai_bad(k, NULL, ": the file cannot be read: %.300s",
                            strrchr(llm_last_error(), ':') ? strrchr(llm_last_error(), ':') + 2 : "");
    llm_text_add(out, (const char *)f.data, f.size);
    return out->failed ? llm__oai_failed(k, llm__nomem(), NULL) : 1;
}

/* What another server has. All of a call's is as long as one may be. */
static int llm__oai_fetched(llm_openai_call *k, llm__str url, int video, llm_text *out, llm_tokens *ends) {
    const double seconds = k->service.media_timeout_s > 0 ? k->service.media_timeout_s : video ? 30 : 5;
    const llm__fetch_rules rules = {k->service.media_domains, seconds, LLM__OAI_FETCHED - k->n_fetched, &k->cancelled};
    const size_t before = out->len;
    if (!rules.domains)
        return llm__oai_bad(k, NULL, ": URLs are fetched only from servers that --allowed-media-domains lists; send a data URI");
    const llm_result r = llm__fetch_get(&rules, url, out);
    if (r == LLM_ERR_NOMEM) return llm__oai_failed(k, r, NULL);
    if (r) return llm__oai_bad(k, NULL, ": %.500s", llm_last_error());
    k->n_fetched += out->len - before;
    llm_tokens_add(ends, (int32_t)out->len);
    return ends->failed ? llm__oai_failed(k, llm__nomem(), NULL) : 1;
}

/* The bytes behind a URL, appended; ends: where each of its pictures ends. */
static int llm__oai_fetch(llm_openai_call *k, llm__str url, int video, llm_text *out, llm_tokens *ends) {
    if (llm__starts(url, llm__lit("data:"))) return llm__oai_data_uri(k, url, out, ends);
    if (llm__starts(url, llm__lit("file:"))) {
        if (!llm__oai_local_file(k, llm__str_from(url, 5), out)) return 0;
        llm_tokens_add(ends, (int32_t)out->len);
        return ends->failed ? llm__oai_failed(k, llm__nomem(), NULL) : 1;
    }
    if (llm__fetchable(url)) return llm__oai_fetched(k, url, video, out, ends);
    return llm__oai_bad(k, NULL, ": a data URI (data:image/png;base64,...) expected");
}

/* ---- Parts ---- */

LLM__PRIVATE int llm__oai_is_media(const char *type, int *video) {
    *video = llm__alias_among("video_url|video|input_video", llm__lit(type), NULL);
    return *video || llm__alias_among("image_url|input_image|image", llm__lit(type), NULL);
}

/* Where a part's URL, or its list of them, stands; *about: the object with its other members. */
static int llm__oai_media_url(const llm_json *d, int part, int *about) {
    static const char *const names[] = {"image_url", "video_url", "image", "video", "url"};
    *about = part;
    for (int i = 0; i < LLM__COUNT(names); i++) {
        int v = llm__oai_get(d, part, names[i]);
        if (v < 0) continue;
        if (llm_json_type_of(d, v) != LLM_JSON_OBJECT) return v;
        *about = v;
        return llm__oai_get(d, v, "url");
    }
    return -1;
}

/* Counts one more picture or video against the limits. */
static int llm__oai_media_count(llm_openai_call *k, int video) {
    const int32_t given = video ? k->service.limit_videos : k->service.limit_images, most = given ? given : LLM__OAI_MEDIA;
    if (++k->n_wanted[video] <= LLM__MAX(most, 0)) return 1;
    return llm__oai_bad(k, NULL, ": At most %d %s(s) may be provided in one prompt.", (int)LLM__MAX(most, 0), video ? "video" : "image");
}

/* The frames a second that a part asks for; 0: it does not say. */
static int llm__oai_media_rate(llm_openai_call *k, const llm_json *d, int about, int part, double *fps) {
    int v = llm__oai_get(d, about, "fps");
    *fps = 0;
    if (v < 0) v = llm__oai_get(d, part, "fps");
    return v < 0 || (llm_json_num(d, v, fps) && LLM__FPS_FITS(*fps)) || llm__oai_bad(k, NULL, ": fps must be a number from 0.001 to 1000");
}

LLM__PRIVATE int llm__oai_media_part(llm_openai_call *k, int part) {
    const llm_json *d = k->chat;
    int about, video, url = llm__oai_media_url(d, part, &about), list = llm_json_type_of(d, url) == LLM_JSON_ARRAY;
    const char *type = llm__oai_word(d, part, "type"), *detail = llm__oai_word(d, about, "detail");
    double fps;
    llm__oai_is_media(type, &video);
    if (!k->service.model->vision)
        return llm__oai_bad(k, NULL, ": %s is not a multimodal model: only parts of type text are supported by it",
                            llm_model_get_info(k->service.model)->family);
    if (url < 0 && llm__oai_has(k, "file_id")) return llm__oai_bad(k, NULL, ": file_id: no files are kept here; send a data URI");
    if (!llm_json_str(d, url, NULL) && !(list && video && llm_json_size(d, url)))
        return llm__oai_bad(k, NULL, ": a part of type %.40s must have a url, a text", type);
    for (int v = list ? llm_json_first(d, url) : -1; v >= 0; v = llm_json_next(d, v))
        if (!llm_json_str(d, v, NULL)) return llm__oai_bad(k, NULL, ": a video must be a list of texts");
    if (list && llm_json_size(d, url) > LLM__OAI_FRAMES)
        return llm__oai_bad(k, NULL, ": at most %d frames, got %d", LLM__OAI_FRAMES, llm_json_size(d, url));
    if (llm__oai_get(d, about, "detail") >= 0 && (!detail || !llm__alias_among("auto|low|high", llm__lit(detail), NULL)))
        return llm__oai_bad(k, NULL, ": detail must be auto, low or high");
    return llm__oai_media_rate(k, d, about, part, &fps) && llm__oai_media_count(k, video);
}

LLM__PRIVATE int llm__oai_media_data(llm_openai_call *k) {
    static const char *const names[2] = {"image", "video"};
    const llm_json *d = k->body;
    int data = llm__oai_get(d, 0, "multi_modal_data");
    if (data < 0) data = llm__oai_get(d, 0, "multimodal_data");
    k->media_data = data;
    if (data < 0) return 1;
    llm__oai_at(k, "%s", llm_json_key(d, data, NULL));
    if (llm__oai_chats(k)) return llm__oai_bad(k, NULL, ": pictures and videos of a chat are parts of its messages");
    if (llm_json_type_of(d, data) != LLM_JSON_OBJECT)
        return llm__oai_bad(k, NULL, "must be an object: {\"image\": [...], \"video\": [...]}");
    if (!k->service.model->vision)
        return llm__oai_bad(k, NULL, ": %s is not a multimodal model, it takes no image and no video",
                            llm_model_get_info(k->service.model)->family);
    for (int m = llm_json_first(d, data); m >= 0; m = llm_json_next(d, m))
        if (strcmp(llm_json_key(d, m, NULL), "image") && strcmp(llm_json_key(d, m, NULL), "video"))
            return llm__oai_bad(k, NULL, ": \"%.40s\" is not supported: image and video are", llm_json_key(d, m, NULL));
    for (int video = 0; video < 2; video++) {
        int v = llm__oai_get(d, data, names[video]), list = llm_json_type_of(d, v) == LLM_JSON_ARRAY;
        for (int e = list ? llm_json_first(d, v) : v; e >= 0; e = list ? llm_json_next(d, e) : -1)
            if (!llm__oai_media_count(k, video)) return 0;
    }
    return 1;
}

/* ---- Opening ---- */

/* What is known of one picture or video before it is opened. */
typedef struct llm__oai_medium {
    int video, url, about, part; /* nodes of `d` */
    const llm_json *d;
} llm__oai_medium;

/* A whole number of a part's own, as a member of the processor's parameters. */
static void llm__oai_media_number(const llm__oai_medium *m, const char *name, llm_text *out) {
    int v = llm__oai_get(m->d, m->about, name);
    if (v < 0) v = llm__oai_get(m->d, m->part, name);
    if (v >= 0) llm_text_format(out, out->len > 1 ? ",%q:%j" : "%q:%j", name, m->d, v);
}

/* mm_processor_kwargs: those of the operator, the request's over them, and what a part says of its own. *none: nobody says anything. */
static int llm__oai_media_kwargs(llm_openai_call *k, const llm__oai_medium *m, llm_text *out) {
    static const char *const own[] = {"min_pixels", "max_pixels", "min_frames", "max_frames", "num_frames"};
    int v = llm__oai_get(k->body, 0, "mm_processor_kwargs");
    llm_text_str(out, "{");
    for (int i = 0; i < LLM__COUNT(own); i++) llm__oai_media_number(m, own[i], out);
    for (int e = llm_json_first(k->body, v); e >= 0; e = llm_json_next(k->body, e))
        llm_text_format(out, out->len > 1 ? ",%q:%j" : "%q:%j", llm_json_key(k->body, e, NULL), k->body, e);
    const char *usual = k->service.mm_processor_kwargs;
    if (usual && strchr(usual, '{')) { /* the first of two equal keys counts */
        const char *from = strchr(usual, '{') + 1, *end = strrchr(usual, '}');
        if (end && strspn(from, " \n\t") < (size_t)(end - from)) {
            if (out->len > 1) llm_text_str(out, ",");
            llm_text_add(out, from, (size_t)(end - from));
        }
    }
    llm_text_str(out, "}");
    return out->failed ? llm__oai_failed(k, llm__nomem(), NULL) : 1;
}

/* Opens what is described, and adds it to the call's. */
static int llm__oai_media_add(llm_openai_call *k, const llm_media_config *c) {
    llm_result r = llm_media_open(k->service.model, c, &k->media[k->n_media]);
    if (r == LLM_ERR_NOMEM) return llm__oai_failed(k, r, NULL);
    if (r) return llm__oai_bad(k, NULL, ": %s: %.500s", c->kind == LLM_MEDIA_VIDEO ? "the video" : "the image", llm_last_error());
    k->n_media++;
    return 1;
}

/* The same of a video that ffmpeg decodes, where that is allowed. */
static int llm__oai_media_film(llm_openai_call *k, llm_media_config *c, llm_text *bytes) {
    LLM__SCOPED(llm__film_free) llm__film film = LLM__ZERO;
    const double seconds = k->service.media_timeout_s > 0 ? k->service.media_timeout_s : 30;
    const llm__film_rules rules = {k->service.model->vision, c->mm_processor_kwargs, c->fps, seconds, (size_t)512 << 20, &k->cancelled};
    const llm__str data = llm__text_str(bytes);
    if (!k->service.allow_ffmpeg)
        return llm__oai_bad(k, NULL,
                            ": the video: it is %s: a GIF, or frames (data:video/jpeg;base64,FRAME,FRAME) expected; with --allow-ffmpeg an "
                            "installed ffmpeg decodes others",
                            llm__picture_kind((const uint8_t *)data.p, data.n));
    const llm_result r = llm__film_read(&rules, data, &film);
    if (r == LLM_ERR_NOMEM) return llm__oai_failed(k, r, NULL);
    if (r) return llm__oai_bad(k, NULL, ": the video: %.500s", llm_last_error());
    llm_text_free(bytes);
    c->frames = film.frames;
    c->n_frames = film.n;
    c->n_source = film.source;
    c->fps = film.fps;
    return llm__oai_media_add(k, c);
}

/* Opens one, and adds it to the call's. */
static int llm__oai_media_one(llm_openai_call *k, const llm__oai_medium *m) {
    LLM__SCOPED(llm_text_free) llm_text bytes = LLM__ZERO, kwargs = LLM__ZERO;
    LLM__SCOPED(llm_tokens_free) llm_tokens ends = LLM__ZERO;
    LLM__SCOPED(llm__drop) llm_media_file *files = NULL;
    const int list = llm_json_type_of(m->d, m->url) == LLM_JSON_ARRAY;
    const char *detail = llm__oai_word(m->d, m->about, "detail");
    llm_media_config c = LLM__ZERO;
    for (int e = list ? llm_json_first(m->d, m->url) : m->url; e >= 0; e = list ? llm_json_next(m->d, e) : -1) {
        const llm__str url = llm__json_text(m->d, e);
        if (!url.p) return llm__oai_bad(k, NULL, ": a url, a text, expected");
        if (!llm__oai_fetch(k, url, m->video, &bytes, &ends)) return 0;
    }
    if (!llm__oai_media_kwargs(k, m, &kwargs)) return 0;
    if (!llm__oai_media_rate(k, m->d, m->about, m->part, &c.fps)) return 0;
    c.kind = m->video ? LLM_MEDIA_VIDEO : LLM_MEDIA_IMAGE;
    c.detail = detail && !strcmp(detail, "low") ? LLM_DETAIL_LOW : LLM_DETAIL_AUTO;
    c.n_images = k->n_wanted[0];
    c.mm_processor_kwargs = kwargs.len > 2 ? kwargs.data : NULL;
    if (m->video && ends.len == 1 && llm__film_kind(llm__text_str(&bytes))) return llm__oai_media_film(k, &c, &bytes);
    files = LLM__NEW(llm_media_file, ends.len);
    if (!files) return llm__oai_failed(k, llm__nomem(), NULL);
    for (size_t i = 0; i < ends.len; i++) {
        const int32_t from = i ? ends.data[i - 1] : 0;
        files[i].data = bytes.data + from;
        files[i].size = (size_t)(ends.data[i] - from);
    }
    c.files = files;
    c.n_files = (int32_t)ends.len;
    return llm__oai_media_add(k, &c);
}

/* Those of the messages, each with the error that names its message. */
static int llm__oai_media_chat(llm_openai_call *k) {
    const llm_json *d = k->chat;
    int i = 0;
    for (int m = llm_json_first(d, k->messages); m >= 0; m = llm_json_next(d, m), i++) {
        int content = llm__oai_get(d, m, "content"), list = llm_json_type_of(d, content) == LLM_JSON_ARRAY;
        for (int part = list ? llm_json_first(d, content) : -1; part >= 0; part = llm_json_next(d, part)) {
            llm__oai_medium one = {0, -1, -1, part, d};
            const char *type = llm__oai_word(d, part, "type");
            if (!type || !llm__oai_is_media(type, &one.video)) continue;
            llm__oai_at(k, k->info.kind == LLM_OPENAI_RESPONSE ? "input" : "messages[%d].content", i);
            one.url = llm__oai_media_url(d, part, &one.about);
            if (!llm__oai_media_one(k, &one)) return 0;
        }
    }
    return 1;
}

/* Those of multi_modal_data: a URL, or (of a video) {"video": URL, "max_frames": 30}. */
static int llm__oai_media_prompt(llm_openai_call *k) {
    static const char *const names[2] = {"image", "video"};
    const llm_json *d = k->body;
    for (int video = 0; video < 2; video++) {
        int v = llm__oai_get(d, k->media_data, names[video]), list = llm_json_type_of(d, v) == LLM_JSON_ARRAY;
        for (int e = list ? llm_json_first(d, v) : v; e >= 0; e = list ? llm_json_next(d, e) : -1) {
            llm__oai_medium one = {video, e, e, e, d};
            llm__oai_at(k, "%s.%s", llm_json_key(d, k->media_data, NULL), names[video]);
            if (llm_json_type_of(d, e) == LLM_JSON_OBJECT) one.url = llm__oai_media_url(d, e, &one.about);
            if (!llm__oai_media_one(k, &one)) return 0;
        }
    }
    return 1;
}

LLM__PRIVATE int llm__oai_media_open(llm_openai_call *k) {
    const int32_t n = k->n_wanted[0] + k->n_wanted[1];
    int v = llm__oai_get(k->body, 0, "mm_processor_kwargs");
    if (k->media || (!n && v < 0)) return 1;
    if (v >= 0 && llm_json_type_of(k->body, v) != LLM_JSON_OBJECT) return llm__oai_bad(k, "mm_processor_kwargs", "must be an object");
    if (!n) return 1;
    k->media = LLM__NEW(llm_media *, n);
    if (!k->media) return llm__oai_failed(k, llm__nomem(), NULL);
    return k->media_data >= 0 ? llm__oai_media_prompt(k) : llm__oai_media_chat(k);
}

LLM__PRIVATE void llm__oai_media_free(llm_openai_call *k) {
    for (int32_t i = 0; i < k->n_media; i++) llm_media_free(k->media[i]);
    LLM_FREE(k->media);
}

/* ---- Marks ---- */

static void llm__oai_media_name(const llm_openai_call *k, int video, char out[40]) {
    snprintf(out, 40, "[%s %016llx]", video ? "video" : "image", (unsigned long long)k->mark);
}

LLM__PRIVATE void llm__oai_media_mark(const llm_openai_call *k, int video, llm_text *out) {
    char mark[40];
    llm__oai_media_name(k, video, mark);
    llm_text_str(out, mark);
}

/* What a template that knows pictures puts before a placeholder, or behind it. */
static const char *llm__oai_around(const llm__vision *v, int video, int behind) {
    static const char *const ernie[2][2] = {{"<|IMAGE_START|>", "<|IMAGE_END|>"}, {"<|VIDEO_START|>", "<|VIDEO_END|>"}};
    if (v->family->flags & LLM__EYES_TWICE) return ernie[video][behind];
    return v->family->flags & LLM__EYES_PAIRS ? (behind ? v->stop : v->start) : "";
}

LLM__PRIVATE int llm__oai_media_marked(llm_openai_call *k, llm_text *text) {
    const llm__vision *v = k->service.model->vision;
    LLM__SCOPED(llm_text_free) llm_text out = LLM__ZERO;
    char marks[2][40];
    for (int i = 0; i < 2; i++) llm__oai_media_name(k, i, marks[i]);
    llm__str rest = llm__text_str(text);
    for (;;) {
        const char *at[2] = {llm__str_find(rest, llm__lit(marks[0])), llm__str_find(rest, llm__lit(marks[1]))};
        const int video = at[1] && (!at[0] || at[1] < at[0]);
        if (!at[video]) break;
        const size_t before = (size_t)(at[video] - rest.p);
        llm_text_add(&out, rest.p, before);
        llm_text_str(&out, llm__oai_around(v, video, 0));
        llm_text_str(&out, video && v->video_placeholder ? v->video_placeholder : v->placeholder);
        llm_text_str(&out, llm__oai_around(v, video, 1));
        rest = llm__str_from(rest, before + strlen(marks[video]));
    }
    llm_text_add(&out, rest.p, rest.n);
    if (out.failed) return llm__oai_failed(k, llm__nomem(), NULL);
    const llm_text old = *text;
    *text = out;
    out = old;
    return 1;
}
