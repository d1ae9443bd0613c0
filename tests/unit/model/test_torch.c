/* Files of torch.save: zips and pickles made here byte by byte; good ones are read exactly, and every way of lying is refused with a sentence. */
#include "../folder.h"
#include "base/platform.h"
#include "base/alloc.h"
#include "base/text.h"
#include "cpu/dtypes.h"
#include "model/tensors.h"
#include "model/gguf.h"
#include "model/zip.h"
#include "model/pickle.h"
#include "model/torch.h"
#include "model/source.h"
#include "model/meta.h"
#include "model/net.h"

/* A text of these bytes, NULs among them. */
#define TOR(text) text, sizeof(text) - 1

static void tor_u(llm_text *t, uint64_t v, int bytes) {
    for (int i = 0; i < bytes; i++, v >>= 8) {
        const char c = (char)(v & 255);
        llm_text_add(t, &c, 1);
    }
}

/* A zip that is being written: members, then the directory. */
typedef struct tor_zip {
    llm_text body, directory;
    int n, method, flags;
} tor_zip;

static void tor_add(tor_zip *z, const char *name, const void *data, size_t size) {
    const size_t at = z->body.len;
    llm_text_add(&z->body, TOR("PK\3\4\0\0\x08\x08\0\0\0\0\0\0\0\0\0\0")); /* sizes are in the directory */
    tor_u(&z->body, 0, 8);
    tor_u(&z->body, strlen(name), 2);
    tor_u(&z->body, 0, 2);
    llm_text_str(&z->body, name);
    if (size) llm_text_add(&z->body, (const char *)data, size);
    llm_text_add(&z->directory, TOR("PK\1\2\0\0\0\0"));
    tor_u(&z->directory, (uint64_t)z->flags, 2);
    tor_u(&z->directory, (uint64_t)z->method, 2);
    tor_u(&z->directory, 0, 8);
    tor_u(&z->directory, size, 4);
    tor_u(&z->directory, size, 4);
    tor_u(&z->directory, strlen(name), 2);
    tor_u(&z->directory, 0, 12);
    tor_u(&z->directory, at, 4);
    llm_text_str(&z->directory, name);
    z->n++;
}

/* The whole file, and forgets what was added. */
static llm_text tor_end(tor_zip *z) {
    llm_text t = z->body;
    const size_t at = t.len, bytes = z->directory.len;
    llm_text_add(&t, z->directory.data ? z->directory.data : "", bytes);
    llm_text_add(&t, TOR("PK\5\6\0\0\0\0"));
    tor_u(&t, (uint64_t)z->n, 2);
    tor_u(&t, (uint64_t)z->n, 2);
    tor_u(&t, bytes, 4);
    tor_u(&t, at, 4);
    tor_u(&t, 0, 2);
    llm_text_free(&z->directory);
    memset(z, 0, sizeof *z);
    return t;
}

/* A dictionary of one tensor "w" of storage "0" (6 floats): what stands between its storage and the end of the call is given. */
#define TOR_STORAGE "(X\7\0\0\0storagectorch\nFloatStorage\nX\1\0\0\0000X\3\0\0\0cpuK\6tQ"
#define TOR_HEAD "\x80\2}(X\1\0\0\0wctorch._utils\n_rebuild_tensor_v2\n(" TOR_STORAGE
#define TOR_TAIL "\x89}tRu."
#define TOR_GOOD TOR_HEAD "K\0K\2K\3\x86K\3K\1\x86" TOR_TAIL

static const float tor_six[6] = {0, 1, 2, 3, 4, 5};

/* A file with this pickle. */
static llm_text tor_file(const void *pickle, size_t n) {
    tor_zip z = LLM__ZERO;
    tor_add(&z, "a/data.pkl", pickle, n);
    tor_add(&z, "a/byteorder", TOR("little"));
    tor_add(&z, "a/data/0", tor_six, sizeof tor_six);
    return tor_end(&z);
}

/* Parses an exact copy. */
static llm_result tor_parse(const llm_text *t, llm__tensors *out, llm__arena *copies, uint8_t **copy) {
    *copy = (uint8_t *)malloc(t->len ? t->len : 1);
    if (t->len) memcpy(*copy, t->data, t->len);
    return llm__torch_parse("file", *copy, t->len, copies, out);
}

/* The file must be refused with these words. Frees it. */
static void tor_refuse(llm_text t, const char *words, int line) {
    llm__tensors tensors = LLM__ZERO;
    llm__arena copies = LLM__ZERO;
    uint8_t *copy;
    const llm_result r = tor_parse(&t, &tensors, &copies, &copy);
    if (!CHECK(r && strstr(llm_last_error(), words)))
        printf("  row %d: %d \"%s\", expected \"%s\"\n", line, (int)r, r ? llm_last_error() : "", words);
    llm__tensors_free(&tensors);
    llm__arena_free(&copies);
    free(copy);
    llm_text_free(&t);
}

/* The values of the tensor "w" of a file with this pickle are these. */
static void tor_values(const void *pickle, size_t n, int n_dims, int64_t rows, int n_values, const float *values) {
    llm__tensors tensors = LLM__ZERO;
    llm__arena copies = LLM__ZERO;
    llm_text t = tor_file(pickle, n);
    uint8_t *copy;
    const llm_result r = tor_parse(&t, &tensors, &copies, &copy);
    const llm__tensor *w = r ? NULL : llm__tensors_find(&tensors, "w");
    if (CHECK(w && w->n_dims == n_dims && (!n_dims || w->shape[0] == rows) && w->bytes == 4 * n_values))
        CHECK(!memcmp(w->data, values, 4 * (size_t)n_values));
    llm__tensors_free(&tensors);
    llm__arena_free(&copies);
    free(copy);
    llm_text_free(&t);
}

static void tor_good(void) {
    static const float across[6] = {0, 3, 1, 4, 2, 5}, odd[3] = {1, 3, 5}, same[4] = {2, 2, 2, 2};
    tor_values(TOR(TOR_GOOD), 2, 2, 6, tor_six);
    tor_values(TOR(TOR_HEAD "K\0K\3K\2\x86K\1K\3\x86" TOR_TAIL), 2, 3, 6, across);
    tor_values(TOR(TOR_HEAD "K\1K\3\x85K\2\x85" TOR_TAIL), 1, 3, 3, odd);
    tor_values(TOR(TOR_HEAD "K\2K\4\x85K\0\x85" TOR_TAIL), 1, 4, 4, same); /* expanded: one element four times */
    tor_values(TOR(TOR_HEAD "K\3))" TOR_TAIL), 0, 1, 1, &tor_six[3]);
    tor_values(TOR(TOR_HEAD "K\0K\0\x85K\1\x85" TOR_TAIL), 1, 0, 0, tor_six);
    /* an OrderedDict with a state, a parameter, a Size, protocol 4, and numbers and lists beside the tensors */
    tor_values(
        TOR("\x80\4\x95\1\0\0\0\0\0\0\0\x8c\x0b"
            "collections\x94\x8c\x0bOrderedDict\x93)R\x94(\x8c\1wctorch._utils\n_rebuild_parameter\n(ctorch._utils\n_rebuild_tensor_v2\n"
            "(" TOR_STORAGE
            "K\0ctorch\nSize\nK\6\x85\x85RK\1\x85\x89}tR\x88}tR\x8c\4step\x8a\2\xe8\3\x8c\4more](K\1G\0\0\0\0\0\0\0\0Ne\x8c\4text\x8c\0u}\x8c\1sNsb."),
        1, 6, 6, tor_six);
    /* what training programs put around it */
    tor_values(TOR("\x80\2}(X\5\0\0\0epochK\5X\x0a\0\0\0state_dict}(X\1\0\0\0wctorch._utils\n_rebuild_tensor_v2\n(" TOR_STORAGE
                   "K\0K\6\x85K\1\x85\x89}tRuu."),
               1, 6, 6, tor_six);
}

/* Two names of one storage, tied or overlapping, are two tensors over the same bytes. */
static void tor_tied(void) {
    static const char pickle[] = "\x80\2}(X\1\0\0\0actorch._utils\n_rebuild_tensor_v2\nq\1(" TOR_STORAGE
                                 "q\2K\0K\4\x85K\1\x85\x89}tRq\3X\1\0\0\0bh\3X\1\0\0\0ch\1(h\2K\2K\4\x85K\1\x85\x89}tRu.";
    llm__tensors t = LLM__ZERO;
    llm__arena copies = LLM__ZERO;
    llm_text file = tor_file(pickle, sizeof pickle - 1);
    uint8_t *copy;
    if (CHECK(!tor_parse(&file, &t, &copies, &copy) && t.n == 3))
        CHECK(t.item[0].data == t.item[1].data && t.item[2].data == t.item[0].data + 8 && !copies.total);
    llm__tensors_free(&t);
    llm__arena_free(&copies);
    free(copy);
    llm_text_free(&file);
}

typedef struct tor_row {
    const char *pickle;
    size_t n;
    const char *words;
} tor_row;

static void tor_pickles(void) {
    static const tor_row rows[] = {
        {TOR("\x80\2cos\nsystem\nX\2\0\0\0id\x85R."), "os.system, which no tensor needs"},
        {TOR("\x80\2cbuiltins\neval\n)R."), "builtins.eval"},
        {TOR("\x80\4\x8c\5posix\x8c\6system\x93."), "posix.system"},
        {TOR("\x80\2ctorch\nload\n)R."), "torch.load"},
        {TOR("\x80\2ctorch\nFloatStorage\nK\6\x85R."), "cannot be called"},
        {TOR("\x80\2cnumpy.core.multiarray\n_reconstruct\n."), "numpy.core.multiarray._reconstruct"},
        {TOR("\x80\2c\1\n\2\n."), "names ?.?"},
        {TOR("\x80\2(cos\nsystem\nios\nsystem\n."), "os.system"},
        {TOR("\x80\2(ios\nsystem\n."), "opcode INST"},
        {TOR("\x80\2(NoN."), "opcode OBJ"},
        {TOR("\x80\2N)\x81."), "opcode NEWOBJ"},
        {TOR("\x80\4N)}\x92."), "opcode NEWOBJ_EX"},
        {TOR("\x80\2\x82\1."), "opcode EXT1"},
        {TOR("\x80\2\x83\1\0."), "opcode EXT2"},
        {TOR("\x80\2\x84\1\0\0\0."), "opcode EXT4"},
        {TOR("\x80\2P0\n."), "opcode PERSID"},
        {TOR("\x80\2I1\n."), "opcode INT"},
        {TOR("\x80\2L1L\n."), "opcode LONG"},
        {TOR("\x80\2F1\n."), "opcode FLOAT"},
        {TOR("\x80\2S'a'\n."), "opcode STRING"},
        {TOR("\x80\2Va\n."), "opcode UNICODE"},
        {TOR("\x80\2Np0\n."), "opcode PUT"},
        {TOR("\x80\2g0\n."), "opcode GET"},
        {TOR("\x80\2N0."), "opcode POP"},
        {TOR("\x80\2(1."), "opcode POP_MARK"},
        {TOR("\x80\2N2."), "opcode DUP"},
        {TOR("\x80\2(d."), "opcode DICT"},
        {TOR("\x80\2(l."), "opcode LIST"},
        {TOR("\x80\4\x8f."), "opcode EMPTY_SET"},
        {TOR("\x80\4\x8f(\x90."), "opcode EMPTY_SET"},
        {TOR("\x80\4(\x91."), "opcode FROZENSET"},
        {TOR("\x80\5\x96\1\0\0\0\0\0\0\0a."), "opcode BYTEARRAY8"},
        {TOR("\x80\5\x97."), "opcode NEXT_BUFFER"},
        {TOR("\x80\5N\x98."), "opcode READONLY_BUFFER"},
        {TOR("\x80\2\xff."), "0xff is no opcode"},
        {TOR("\x80\1N."), "a protocol from 2 to 5"},
        {TOR("\x80\6N."), "a protocol from 2 to 5"},
        {TOR("N."), "a protocol from 2 to 5"},
        {TOR(""), "a protocol from 2 to 5"},
        {TOR("\x80\2N"), "truncated"},
        {TOR("\x80\2X\xff\xff\xff\xff."), "truncated"},
        {TOR("\x80\4\x8d\xff\xff\xff\xff\xff\xff\xff\xff."), "truncated"},
        {TOR("\x80\4\x95\xff\0\0\0\0\0\0\0N."), "truncated"},
        {TOR("\x80\2cos"), "a line of at most"},
        {TOR("\x80\2."), "one value expected"},
        {TOR("\x80\2NN."), "one value expected"},
        {TOR("\x80\2(N."), "one value expected"},
        {TOR("\x80\2N.N"), "bytes after its end"},
        {TOR("\x80\2Nt."), "no mark"},
        {TOR("\x80\2N\x86."), "the stack is empty"},
        {TOR("\x80\2N(\x85."), "the stack is empty"},
        {TOR("\x80\2Ns."), "a dictionary and pairs"},
        {TOR("\x80\2}(Nu."), "a dictionary and pairs"},
        {TOR("\x80\2}(NNs."), "a dictionary and pairs"},
        {TOR("\x80\2NNa."), "a list and items"},
        {TOR("\x80\2h\0."), "no such entry"},
        {TOR("\x80\2Nq\5h\4."), "no such entry"},
        {TOR("\x80\2q\0."), "the stack is empty"},
        {TOR("\x80\2Nr\xff\xff\xff\x7f."), "memo has more than"},
        {TOR("\x80\2N}b."), "only dictionaries"},
        {TOR("\x80\2}Nb."), "only dictionaries"},
        {TOR("\x80\2N)R."), "cannot be called"},
        {TOR("\x80\2ccollections\nOrderedDict\n]R."), "cannot be called"},
        {TOR("\x80\2ccollections\nOrderedDict\nN\x85R."), "is made empty"},
        {TOR("\x80\2ctorch\nSize\nN\x85R."), "a Size of numbers"},
        {TOR("\x80\2NQ."), "the id of a storage"},
        {TOR("\x80\2X\4\0\0\0file\x85Q."), "the id of a storage"},
        {TOR("\x80\4NN\x93."), "a name is two texts"},
        {TOR("\x80\2((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((("), "64 marks"},
    };
    for (int i = 0; i < LLM__COUNT(rows); i++) tor_refuse(tor_file(rows[i].pickle, rows[i].n), rows[i].words, i);
}

/* Pickles that are good ones, of what is no tensor or none that fits. */
static void tor_views(void) {
    static const tor_row rows[] = {
        {TOR("\x80\2N."), "a dictionary of tensors"},
        {TOR("\x80\2}."), "a dictionary of tensors"},
        {TOR("\x80\2]q\0h\0a."), "a dictionary of tensors"},               /* a list that has itself */
        {TOR("\x80\2}q\0X\5\0\0\0modelh\0s."), "a dictionary of tensors"}, /* and a dictionary */
        {TOR(TOR_HEAD "K\0K\2K\4\x86K\4K\1\x86" TOR_TAIL), "beyond its storage of 24 bytes"},
        {TOR(TOR_HEAD "K\1K\2K\3\x86K\3K\1\x86" TOR_TAIL), "beyond its storage"},
        {TOR(TOR_HEAD "\x8a\x08\xff\xff\xff\xff\xff\xff\xff\x7fK\1\x85K\1\x85" TOR_TAIL), "beyond its storage"},
        {TOR(TOR_HEAD "K\0\x8a\5\0\0\0\0\1\x8a\5\0\0\0\0\1\x86K\0K\0\x86" TOR_TAIL), "beyond its storage"}, /* 2^64 elements of one */
        {TOR(TOR_HEAD "K\0M\xff\xff\x85K\0\x85" TOR_TAIL), "more than the file has"},
        {TOR(TOR_HEAD "J\xff\xff\xff\xffK\1\x85K\1\x85" TOR_TAIL), "whole numbers from 0 on"},
        {TOR(TOR_HEAD "K\0J\xff\xff\xff\xff\x85K\1\x85" TOR_TAIL), "whole numbers from 0 on"},
        {TOR(TOR_HEAD "K\0K\1\x85J\xff\xff\xff\xff\x85" TOR_TAIL), "whole numbers from 0 on"},
        {TOR(TOR_HEAD "K\0K\1\x85)" TOR_TAIL), "as many strides"},
        {TOR(TOR_HEAD "K\0NN" TOR_TAIL), "as many strides"},
        {TOR(TOR_HEAD "K\0(K\1K\1K\1K\1K\1K\1K\1K\1K\1K\1K\1K\1K\1K\1K\1K\1K\1tK\1\x85" TOR_TAIL), "at most 16 sizes"},
        {TOR(TOR_HEAD "K\0K\1\x85K\1\x85\x89}}X\4\0\0\0conj\x88stRu."), "conjugated"},
        {TOR("\x80\2}(X\1\0\0\0wctorch._utils\n_rebuild_tensor_v2\n(NK\0K\1\x85K\1\x85\x89}tRu."), "it has no storage"},
        {TOR("\x80\2}(X\1\0\0\0wctorch._utils\n_rebuild_tensor_v2\n(X\7\0\0\0storageNX\1\0\0\0000X\3\0\0\0cpuK\6(tQtRu."),
         "the id of a storage"},
        {TOR("\x80\2}(X\1\0\0\0wctorch._utils\n_rebuild_tensor_v2\n((X\7\0\0\0storageNX\1\0\0\0000X\3\0\0\0cpuK\6tQK\0K\1\x85K\1\x85\x89}tRu."),
         "a type, a key and a number"},
        {TOR("\x80\2}(X\1\0\0\0wctorch._utils\n_rebuild_tensor_v2\n((X\7\0\0\0storagectorch\nFloatStorage\nX\1\0\0\0001X\3\0\0\0cpuK\6tQK\0K\1\x85K\1\x85\x89}tRu."),
         "storage a/data/1 is missing"},
        {TOR("\x80\2}(X\1\0\0\0wctorch._utils\n_rebuild_tensor_v2\n((X\7\0\0\0storagectorch\nFloatStorage\nX\1\0\0\0000X\3\0\0\0cpuK\7tQK\0K\1\x85K\1\x85\x89}tRu."),
         "7 elements are said"},
        {TOR("\x80\2}(X\1\0\0\0wctorch._utils\n_rebuild_tensor_v2\n((X\7\0\0\0storagectorch.storage\nUntypedStorage\nX\1\0\0\0000X\3\0\0\0cpuK\x18tQK\0K\1\x85K\1\x85\x89}tRu."),
         "a dtype expected"},
        {TOR("\x80\2}(X\2\0\0\0a\1ctorch._utils\n_rebuild_tensor_v2\n(" TOR_STORAGE "K\0K\1\x85K\1\x85\x89}tRu."), "no plain text"},
        {TOR("\x80\2}(K\1ctorch._utils\n_rebuild_tensor_v2\n(" TOR_STORAGE "K\0K\1\x85K\1\x85\x89}tRu."), "is no text"},
        {TOR("\x80\2}(X\1\0\0\0wctorch._utils\n_rebuild_tensor_v2\n(" TOR_STORAGE "K\0K\1\x85K\1\x85\x89}tRq\1X\1\0\0\0wh\1u."),
         "it is there twice"},
    };
    for (int i = 0; i < LLM__COUNT(rows); i++) tor_refuse(tor_file(rows[i].pickle, rows[i].n), rows[i].words, 1000 + i);
}

/* A good file with bytes of it changed: where, counted from its end if negative, and to what. */
static llm_text tor_changed(int at, const char *bytes, size_t n) {
    llm_text t = tor_file(TOR(TOR_GOOD));
    memcpy(t.data + (at < 0 ? (int)t.len + at : at), bytes, n);
    return t;
}

static void tor_zips(void) {
    const llm_text good = tor_file(TOR(TOR_GOOD));
    llm_text t;
    for (size_t n = 0; n < good.len; n++) { /* cut anywhere */
        memset(&t, 0, sizeof t);
        llm_text_add(&t, good.data, n);
        tor_refuse(t, "file: ", (int)n);
    }
    tor_refuse(tor_changed(-12, TOR("\4\0")), "do not fit", __LINE__); /* entries */
    tor_refuse(tor_changed(-14, TOR("\xff\xff\xff\xff")), "do not fit", __LINE__);
    tor_refuse(tor_changed(-6, TOR("\xff\xff\xff\x7f")), "do not fit", __LINE__); /* where the directory is */
    tor_refuse(tor_changed(-18, TOR("\1")), "do not fit", __LINE__);              /* of several disks */
    tor_refuse(tor_changed(0, TOR("PK\3\5")), "no file of torch.save", __LINE__);
    tor_refuse(tor_changed(8, TOR("\x08")), "its own header", __LINE__);
    tor_refuse(tor_changed(30, TOR("b")), "its own header", __LINE__);
    static const struct {
        const char *name[2];
        size_t size[2];
        int method, flags;
        const char *words;
    } rows[] = {
        {{"a/data.pkl", "a/data.pkl"}, {4, 4}, 0, 0, "it is there twice"},
        {{"a/data.pkl", "b/data.pkl"}, {4, 4}, 0, 0, "one data.pkl"},
        {{"a/data", "b"}, {4, 4}, 0, 0, "data.pkl is missing"},
        {{"data.pkl", "b"}, {4, 4}, 0, 0, "data.pkl is missing"},
        {{"a/data.pkl", "a/b\n"}, {4, 4}, 0, 0, "no plain text"},
        {{"a/data.pkl", "b"}, {4, 4}, 8, 0, "it is compressed (method 8)"},
        {{"a/data.pkl", "b"}, {4, 4}, 0, 1, "it is encrypted"},
    };
    for (int i = 0; i < LLM__COUNT(rows); i++) {
        tor_zip z = LLM__ZERO;
        z.method = rows[i].method, z.flags = rows[i].flags;
        for (int k = 0; k < 2; k++) tor_add(&z, rows[i].name[k], "\x80\2N.", rows[i].size[k]);
        tor_refuse(tor_end(&z), rows[i].words, 2000 + i);
    }
    tor_zip z = LLM__ZERO; /* two entries about one member */
    tor_add(&z, "a/data.pkl", TOR("\x80\2N."));
    const size_t one = z.directory.len;
    memset(&t, 0, sizeof t);
    llm_text_add(&t, z.directory.data, one);
    llm_text_add(&z.directory, t.data, one);
    llm_text_free(&t);
    z.n++;
    tor_refuse(tor_end(&z), "it is there twice", __LINE__);
    tor_add(&z, "a/data.pkl", TOR("\x80\2N."));
    tor_add(&z, "a/b", TOR("PK\3\4\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\3\0\0\0a/c")); /* a member within another one */
    tor_add(&z, "a/c", TOR(""));
    memcpy(z.directory.data + z.directory.len - 7, "\x4d\0\0\0", 4);
    tor_refuse(tor_end(&z), "it overlaps a/b", __LINE__);
    tor_add(&z, "a/data.pkl", TOR(TOR_GOOD));
    tor_add(&z, "a/byteorder", TOR("big"));
    tor_refuse(tor_end(&z), "byteorder: little expected", __LINE__);
    llm_text old = LLM__ZERO; /* from before torch 1.6 */
    llm_text_add(&old, TOR("\x80\2\x8a\nl\xfc\x9c\x46\xf9 j\xa8P\x19.\x80\2M\xe9\3.\x80\2}X\x0d\0\0\0little_endian\x88s." TOR_GOOD
                           "\x80\2]X\1\0\0\0000a.\6\0\0\0\0\0\0\0"));
    llm_text_add(&old, (const char *)tor_six, sizeof tor_six);
    llm__tensors tensors = LLM__ZERO;
    llm__arena copies = LLM__ZERO;
    uint8_t *copy;
    if (CHECK(!tor_parse(&old, &tensors, &copies, &copy) && tensors.n == 1)) CHECK(!memcmp(tensors.item[0].data, tor_six, sizeof tor_six));
    llm__tensors_free(&tensors);
    free(copy);
    for (size_t n = 15; n < old.len; n++) {
        memset(&t, 0, sizeof t);
        llm_text_add(&t, old.data, n);
        tor_refuse(t, "file: ", (int)n);
    }
    llm_text_str(&old, "x");
    tor_refuse(old, "1 bytes after the last storage", __LINE__);
    t = good;
    llm_text_free(&t);
}

/* A zip may have a comment, 64-bit sizes, and members that nobody names. */
static void tor_zip_read(void) {
    tor_zip z = LLM__ZERO;
    llm__zip zip;
    tor_add(&z, "a/x", TOR("abc"));
    const size_t at = z.body.len;
    tor_add(&z, "a/y", TOR(""));
    memcpy(z.directory.data + z.directory.len - 3 - 46 + 30, "\x0c\0", 2); /* the second entry: its place in an extra field of 64 bits */
    memcpy(z.directory.data + z.directory.len - 7, "\xff\xff\xff\xff", 4);
    llm_text_add(&z.directory, TOR("\1\0\x08\0"));
    tor_u(&z.directory, at, 8);
    llm_text t = tor_end(&z);
    memcpy(t.data + t.len - 2, "\3\0", 2);
    llm_text_str(&t, "hi!");
    if (CHECK(!llm__zip_open("file", (const uint8_t *)t.data, t.len, &zip)) && CHECK(llm__zip_is((const uint8_t *)t.data, t.len))) {
        const llm__zip_item *x = llm__zip_find(&zip, llm__lit("a/x")), *y = llm__zip_find(&zip, llm__lit("a/y"));
        CHECK(zip.n == 2 && x && x->size == 3 && !memcmp(x->data, "abc", 3) && y && !y->size && y->begin == at &&
              !llm__zip_find(&zip, llm__lit("a/z")));
    }
    llm__zip_close(&zip);
    llm_text_free(&t);
}

/* Nothing steps along a dimension of one, whatever its stride is. */
static void tor_stride(void) {
    static const float turned[6] = {0, 3, 1, 4, 2, 5};
    static const char pickle[] = TOR_HEAD "K\0K\3K\1K\2\x87K\1\x8a\x08\xff\xff\xff\xff\xff\xff\xff\x7fK\3\x87" TOR_TAIL;
    tor_values(TOR(pickle), 3, 3, 6, turned);
}

static void tor_pickle_read(void) {
    static const char text[] = "\x80\2(K\5J\xff\xff\xff\xff\x8a\1\x80\x8a\0\x8a\7\0\0\0\0\0\0\1X\2\0\0\0hi\x88]}t.rest";
    static const int64_t numbers[] = {5, -1, -128, 0, (int64_t)1 << 48};
    llm__pickle p;
    if (!CHECK(!llm__pickle_open("file", (const uint8_t *)text, sizeof text - 1, &p))) return;
    CHECK(llm__pickle_is(&p, p.root, LLM__PICKLE_TUPLE) && p.value[p.root].n == 9 && p.used == sizeof text - 1 - 4);
    for (int i = 0; i < 5; i++) CHECK(p.value[llm__pickle_part(&p, p.root, i)].n == numbers[i]);
    CHECK(llm__str_eq(p.value[llm__pickle_part(&p, p.root, 5)].text, "hi") && llm__pickle_part(&p, p.root, 9) == -1);
    CHECK(!llm__pickle_is(&p, -1, LLM__PICKLE_NONE) && !strcmp(llm__pickle_dtype(LLM__PY_S_BF16), "BF16") &&
          !llm__pickle_dtype(LLM__PY_TENSOR2));
    llm__pickle_close(&p);
}

/* Parts of a matrix: rows and columns of the whole, wherever they are cut. */
static void tor_parts(void) {
    uint16_t whole[6 * 8], got[48], part[2][24];
    const uint8_t *data[2] = {(const uint8_t *)part[0], (const uint8_t *)part[1]};
    for (int by_cols = 0; by_cols < 2; by_cols++) {
        const llm__tensor_parts p = {data, 6, 8, 2, LLM_TYPE_BF16, by_cols};
        llm__tensor t = LLM__ZERO;
        float value[8];
        for (int i = 0; i < 48; i++) {
            whole[i] = llm__f32_to_bf16((float)i);
            if (by_cols) part[i % 8 / 4][i / 8 * 4 + i % 4] = whole[i];
            else part[i / 24][i % 24] = whole[i];
        }
        llm__parts_read(&p, 1, 2, 3, 2, 5, got);
        for (int i = 0; i < 15; i++) CHECK(got[i] == whole[(1 + 2 * (i / 5)) * 8 + 2 + i % 5]);
        t.type = LLM_TYPE_BF16, t.parts = &p;
        llm__tensor_values(&t, 4, 8, 1, 7, value);
        CHECK(value[0] == 33 && value[6] == 39);
    }
}

/* What tells models apart reads matrices that are in parts, too, each part of them. */
static void tor_mark(void) {
    static llm_model m;
    uint8_t part[2][96] = {{0}};
    const uint8_t *data[2] = {part[0], part[1]};
    const llm__tensor_parts p = {data, 12, 8, 2, LLM_TYPE_BF16, 0};
    llm__tensor x = LLM__ZERO;
    x.type = LLM_TYPE_BF16, x.n_dims = 2, x.shape[0] = 12, x.shape[1] = 8;
    CHECK(!llm__tensors_add(&m.source.tensors, "m", llm__lit("output.weight"), &x));
    m.source.tensors.item[0].parts = &p;
    const uint64_t zeros = llm__model_mark(&m);
    CHECK(zeros == llm__model_mark(&m));
    for (int i = 0; i < 2; i++) {
        part[i][90] = 1;
        CHECK(llm__model_mark(&m) != zeros);
        part[i][90] = 0;
    }
    llm__tensors_free(&m.source.tensors);
}

/* A matrix of two files without a column, of more rows than there are numbers to count them, is refused at once. */
static void tor_empty_parts(void) {
    static const char pickle[] = "\x80\2}(X\x0d\0\0\0output.weightctorch._utils\n_rebuild_tensor_v2\n(" TOR_STORAGE
                                 "K\0\x8a\x08\0\0\0\0\0\0\0\x20K\0\x86K\0K\0\x86" TOR_TAIL;
    test_folder f;
    llm__source s = LLM__ZERO;
    llm_text t = tor_file(TOR(pickle));
    if (!folder_open(&f)) return;
    s.path = f.path;
    folder_write_text(&f, "params.json", "{\"dim\": 64, \"n_layers\": 1, \"n_heads\": 4}");
    folder_write(&f, "consolidated.00.pth", t.data, t.len);
    folder_write(&f, "consolidated.01.pth", t.data, t.len);
    CHECK(llm__meta_open(&s, f.path, 0) == LLM_ERR_FORMAT && strstr(llm_last_error(), "parts of 2305843009213693952 x 0"));
    llm_text_free(&t);
    for (size_t i = 0; i < s.n_files; i++) llm__file_close(&s.files[i]);
    LLM_FREE(s.files);
    llm__arena_free(&s.arena);
    folder_close(&f);
}

static void tor_meta(void) {
    test_folder f;
    llm__source s = LLM__ZERO;
    if (!folder_open(&f)) return;
    s.path = f.path;
    CHECK(!llm__meta_is(&s, f.path));
    folder_write_text(&f, "params.json", "{\"dim\": 64, \"n_layers\": 1, \"n_heads\": 4, \"multiple_of\": 32}");
    CHECK(llm__meta_is(&s, f.path) && !llm__meta_open(&s, f.path, 1) && llm_json_find(s.config, 0, "intermediate_size") > 0);
    llm_json_free(s.config);
    s.config = NULL;
    CHECK(llm__meta_open(&s, f.path, 0) == LLM_ERR_IO && strstr(llm_last_error(), "no consolidated.00.pth"));
    llm_text t = tor_file(TOR(TOR_GOOD));
    folder_write(&f, "consolidated.01.pth", t.data, t.len);
    CHECK(llm__meta_open(&s, f.path, 0) == LLM_ERR_FORMAT && strstr(llm_last_error(), "consolidated.00.pth is missing"));
    folder_write(&f, "consolidated.00.pth", t.data, t.len - 1);
    CHECK(llm__meta_open(&s, f.path, 0) == LLM_ERR_FORMAT && strstr(llm_last_error(), "consolidated.00.pth"));
    folder_write_text(&f, "params.json", "{\"dim\": \"wide\"}");
    CHECK(llm__meta_open(&s, f.path, 0) == LLM_ERR_FORMAT && strstr(llm_last_error(), "dim: a number"));
    folder_write_text(&f, "config.json", "{}");
    CHECK(!llm__meta_is(&s, f.path));
    llm_text_free(&t);
    for (size_t i = 0; i < s.n_files; i++) llm__file_close(&s.files[i]);
    LLM_FREE(s.files);
    llm__arena_free(&s.arena);
    folder_close(&f);
}

TEST_GROUP(torch) {
    tor_good();
    tor_tied();
    tor_pickles();
    tor_views();
    tor_zips();
    tor_zip_read();
    tor_pickle_read();
    tor_parts();
    tor_stride();
    tor_mark();
    tor_empty_parts();
    tor_meta();
}
