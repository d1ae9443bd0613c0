/* Structs of programs that were compiled with an earlier or a later version of the header. */
#include "../test.h"
#include "base/platform.h"
#include "serve/sizes.h"

/* One struct inside another, as an earlier version, this one and a later one have them. */
typedef struct sizes_inner_1 {
    int64_t x;
} sizes_inner_1;
typedef struct sizes_outer_1 {
    int32_t a;
    sizes_inner_1 in;
    int32_t b;
    char c[4];
} sizes_outer_1;
typedef struct sizes_inner_2 {
    int64_t x, y;
} sizes_inner_2;
typedef struct sizes_outer_2 {
    int32_t a;
    sizes_inner_2 in;
    int32_t b;
    char c[4];
    double d;
} sizes_outer_2;
typedef struct sizes_inner_3 {
    int64_t x, y, z;
} sizes_inner_3;
typedef struct sizes_outer_3 {
    int32_t a;
    sizes_inner_3 in;
    int32_t b;
    char c[4];
    double d, e;
} sizes_outer_3;

static const llm__layout sizes_inner = {"inner", sizeof(sizes_inner_2), offsetof(llm_sizes, sampling), {{0, NULL}}};
static const llm__layout sizes_outer = {
    "outer", sizeof(sizes_outer_2), offsetof(llm_sizes, request_config), {{offsetof(sizes_outer_2, in), &sizes_inner}}};

static llm_sizes sizes_table(size_t inner, size_t outer) {
    llm_sizes t = LLM_SIZES_HERE;
    t.sampling = (uint32_t)inner;
    t.request_config = (uint32_t)outer;
    return t;
}

static void sizes_earlier_program(void) {
    const llm_sizes t = sizes_table(sizeof(sizes_inner_1), sizeof(sizes_outer_1));
    const sizes_outer_1 program = {1, {2}, 3, "abc"};
    sizes_outer_2 own;
    struct {
        sizes_outer_1 s;
        char behind[16];
    } filled;
    memset(&own, 0xFF, sizeof own);
    CHECK(!llm__struct_in(&t, &sizes_outer, &program, &own));
    CHECK(own.a == 1 && own.in.x == 2 && own.b == 3 && !strcmp(own.c, "abc"));
    CHECK(own.in.y == 0 && own.d == 0);
    memset(&filled, 0x5A, sizeof filled);
    own.in.y = 7;
    own.d = 8;
    own.b = 9;
    llm__struct_out(&t, &sizes_outer, &own, &filled);
    CHECK(filled.s.a == 1 && filled.s.in.x == 2 && filled.s.b == 9 && !strcmp(filled.s.c, "abc"));
    for (size_t i = 0; i < sizeof filled.behind; i++) CHECK(filled.behind[i] == 0x5A);
}

static void sizes_later_program(void) {
    const llm_sizes t = sizes_table(sizeof(sizes_inner_3), sizeof(sizes_outer_3));
    sizes_outer_3 program = {1, {2, 3, 0}, 4, "abc", 5, 0};
    sizes_outer_2 own;
    CHECK(!llm__struct_in(&t, &sizes_outer, &program, &own));
    CHECK(own.a == 1 && own.in.x == 2 && own.in.y == 3 && own.b == 4 && !strcmp(own.c, "abc") && own.d == 5);
    program.e = 1;
    CHECK(llm__struct_in(&t, &sizes_outer, &program, &own) == LLM_ERR_ARG);
    CHECK(strstr(llm_last_error(), "outer: the program sets what version " LLM_VERSION_STRING " of the library does not know"));
    program.e = 0;
    program.in.z = INT64_C(1) << 56; /* the last of its bytes */
    CHECK(llm__struct_in(&t, &sizes_outer, &program, &own) == LLM_ERR_ARG);
    CHECK(strstr(llm_last_error(), "inner: the program sets"));
    program.in.z = 0;
    CHECK(!llm__struct_in(&t, &sizes_outer, &program, &own));
    memset(&program, 0xFF, sizeof program);
    llm__struct_out(&t, &sizes_outer, &own, &program);
    CHECK(program.a == 1 && program.in.x == 2 && program.in.y == 3 && program.in.z == 0);
    CHECK(program.b == 4 && !strcmp(program.c, "abc") && program.d == 5 && program.e == 0);
}

/* A table that lacks a size, one that ends before it, and one of a program that is too old for the inner struct. */
static void sizes_missing(void) {
    llm_sizes t = sizes_table(0, sizeof(sizes_outer_1));
    const sizes_outer_1 program = {1, {2}, 3, "abc"};
    sizes_outer_2 own;
    CHECK(llm__struct_in(&t, &sizes_outer, &program, &own) == LLM_ERR_ARG);
    CHECK(strstr(llm_last_error(), "inner: its size was expected in llm_sizes, not 0"));
    t = sizes_table(sizeof(sizes_inner_1), 0);
    CHECK(llm__struct_in(&t, &sizes_outer, &program, &own) == LLM_ERR_ARG && strstr(llm_last_error(), "outer: its size"));
    t = sizes_table(sizeof(sizes_inner_1), sizeof(sizes_outer_1));
    CHECK(llm__size_of(&t, &sizes_outer) == sizeof(sizes_outer_1));
    t.sizes = (uint32_t)offsetof(llm_sizes, request_config);
    CHECK(llm__size_of(&t, &sizes_outer) == 0);
    t = sizes_table(0, offsetof(sizes_outer_2, in));
    CHECK(!llm__struct_in(&t, &sizes_outer, &program, &own) && own.a == 1 && own.in.x == 0 && own.b == 0);
}

/* Sizes by bytes: a struct of the API that ends early, and one that goes on. */
static void sizes_functions(void) {
    llm_sizes t = LLM_SIZES_HERE;
    struct {
        llm_json_limits limits;
        int32_t more;
    } later = {{2, 0, 1}, 0};
    char filled[sizeof(llm_setup) + 8];
    llm_setup s;
    llm_json *doc;
    CHECK(!llm_json_parse_sized(&t, "[[1]]", 5, NULL, &doc));
    llm_json_free(doc);
    t.json_limits = sizeof later;
    CHECK(llm_json_parse_sized(&t, "[[[1]]]", 7, &later.limits, &doc) == LLM_ERR_LIMIT && !doc);
    CHECK(!llm_json_parse_sized(&t, "[[1]]", 5, &later.limits, &doc));
    llm_json_free(doc);
    later.more = 1;
    CHECK(llm_json_parse_sized(&t, "[[1]]", 5, &later.limits, &doc) == LLM_ERR_ARG && !doc);
    t.json_limits = offsetof(llm_json_limits, unique_keys);
    CHECK(!llm_json_parse_sized(&t, "{\"a\":1,\"a\":1}", 13, &later.limits, &doc)); /* the third member is not read */
    llm_json_free(doc);
    memset(filled, 0x5A, sizeof filled);
    t.engine_config -= 8; /* in the middle of a setup: what follows stands 8 bytes earlier */
    t.setup -= 8;
    llm_setup_init_sized(&t, (llm_setup *)(void *)filled);
    llm_setup_init(&s);
    CHECK(!memcmp(filled, &s, offsetof(llm_setup, engine)));
    for (size_t i = 0; i < 16; i++) CHECK(filled[t.setup + i] == 0x5A);
    CHECK(filled[t.setup - 1] == 0);
}

/* A later program's struct: what it sets beyond this version is refused before anything is done; left at 0 it is none of our business. */
static void sizes_makers(void) {
    llm_sizes t = LLM_SIZES_HERE;
    struct {
        llm_quantize_config c;
        int64_t more;
    } file;
    struct {
        llm_quantize_folder_config c;
        int64_t more;
    } folder;
    struct {
        llm_media_config c;
        int64_t more;
    } media;
    llm_media *opened = (llm_media *)(void *)&media;
    memset(&file, 0, sizeof file);
    memset(&folder, 0, sizeof folder);
    memset(&media, 0, sizeof media);
    t.quantize_config = sizeof file, t.quantize_folder_config = sizeof folder, t.media_config = sizeof media;
    for (int set = 1; set >= 0; set--) {
        file.more = folder.more = media.more = set;
        const llm_result r[] = {llm_quantize_sized(&t, "/nowhere", "/nowhere/out", &file.c, NULL),
                                llm_convert_folder_sized(&t, "/nowhere", "/nowhere/out", &file.c, NULL),
                                llm_quantize_folder_sized(&t, "/nowhere", "/nowhere/out", &folder.c, NULL)};
        for (int i = 0; i < LLM__COUNT(r); i++) CHECK(set ? r[i] == LLM_ERR_ARG : r[i] != LLM_OK);
        CHECK(!strstr(llm_last_error(), "the program sets") == !set);
    }
    file.more = media.more = 1;
    CHECK(llm_imatrix_sized(&t, NULL, "a", 1, "/nowhere/out", &file.c, NULL) == LLM_ERR_ARG &&
          strstr(llm_last_error(), "the program sets"));
    CHECK(llm_media_open_sized(&t, NULL, &media.c, &opened) == LLM_ERR_ARG && !opened && strstr(llm_last_error(), "the program sets"));
}

TEST_GROUP(sizes) {
    sizes_makers();
    sizes_earlier_program();
    sizes_later_program();
    sizes_missing();
    sizes_functions();
    CHECK(llm_version() == LLM_VERSION);
}
