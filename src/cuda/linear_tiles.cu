/* linear_tiles: tiles of 64 rows: many rows of each expert, and what stays f32. */

static constexpr int TILE_STRIDE = 40; /* 16-bit values between rows of 32 in shared memory */

/* Half a sub of activations of row `row` of the tile, zeros outside, times `by`; *most: the largest size before that. */
static __device__ __forceinline__ void load_x(const linear_args &a, const tile &t, int row, int c, int whole, float by, float *v,
                                              float *most) {
#pragma unroll
    for (int i = 0; i < 4; i++) {
        float4 y = make_float4(0, 0, 0, 0);
        if (row < t.n) y = load_x4(a, x_row(a, t, row), c + 4 * i, whole);
        v[4 * i] = y.x, v[4 * i + 1] = y.y, v[4 * i + 2] = y.z, v[4 * i + 3] = y.w;
    }
#pragma unroll
    for (int i = 0; i < 16; i++) {
        *most = fmaxf(*most, fabsf(v[i]));
        v[i] *= by;
    }
}

/* Computes the same in tiles of 64 rows x 64 rows of W, 32 columns at a time. Grid: (rows of W / 64, tiles), 4 warps of 32 x 32 outputs.
 * While a tile is multiplied the next one is on its way into registers; W is widened between registers and shared memory, so its packed
 * bytes are all that is read. A thread loads half a sub of x and of W: thread i row i / 2, columns 16 (i % 2) and 15 more. Shared rows are
 * 40 values apart (80 bytes), which lets ldmatrix read 8 of them without meeting a bank twice. A tile with a value that no half holds is
 * done again, with its rows scaled: so a row's result depends on the row alone. Twin: llm__run_linear. */
template <int K> static __global__ void __launch_bounds__(128, 4) kernel_linear_mma(linear_args a) {
    const bool HALF = K != KIND_BF16;
    SMEM(uint16_t, xs, TILE * TILE_STRIDE);
    SMEM(uint16_t, ws, TILE * TILE_STRIDE);
    SMEM(float, back, TILE); /* of each row, what brings its sums back */
    if (a.begin) grid_wait();
    tile t = tile_at(a, (int)blockIdx.y, TILE);
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, rows = group_rows(a), n0 = (int)blockIdx.x * TILE;
    int mine = threadIdx.x >> 1, h = threadIdx.x & 1, wm = (warp >> 1) * 32, wn = (warp & 1) * 32;
    float sum[2][4][4], x[16], by = 1, most = 0;
    packed<K> packed_w = {};
    int again = 0, whole = x_whole(a);
    if (!t.n) return grid_wait();
    for (;; again = 1) {
        memset(sum, 0, sizeof sum);
        for (int sub = -1; sub < a.subs; sub++) {
            if (sub >= 0) { /* what was loaded goes to shared memory */
                store_narrow<HALF>(xs + mine * TILE_STRIDE + h * 16, x);
                float w[16] = {};
                if (n0 + mine < rows) scaled16<K>(packed_w, h, a.w.table, w);
                store_narrow<HALF>(ws + mine * TILE_STRIDE + h * 16, w);
                __syncthreads();
            }
            if (sub + 1 < a.subs) {
                if (n0 + mine < rows) load_packed<K>(a.w, group_row(a, t, n0 + mine), sub + 1, h, &packed_w);
                if (sub < 0) grid_wait();
                load_x(a, t, mine, (sub + 1) * 32 + h * 16, whole, by, x, &most);
            }
            if (sub < 0) continue;
#pragma unroll
            for (int k = 0; k < 32; k += 16) {
                uint32_t xf[2][4], wf[2][4];
#pragma unroll
                for (int i = 0; i < 2; i++) load_matrix_x4(xf[i], xs + (wm + 16 * i + (lane & 15)) * TILE_STRIDE + k + (lane >> 4) * 8);
#pragma unroll
                for (int j = 0; j < 2; j++)
                    load_matrix_x4(wf[j], ws + (wn + 16 * j + (lane & 7) + (lane >> 4) * 8) * TILE_STRIDE + k + (lane >> 3 & 1) * 8);
#pragma unroll
                for (int i = 0; i < 2; i++)
#pragma unroll
                    for (int j = 0; j < 4; j++) mma_16x8x16<HALF>(sum[i][j], xf[i], wf[j >> 1] + 2 * (j & 1));
            }
            __syncthreads();
        }
        if (!HALF || again) break;
        most = fmaxf(most, __shfl_xor_sync(~0u, most, 1)); /* both halves of a row */
        by = half_scale(most);
        back[mine] = 1 / by;
        if (!__syncthreads_or(by != 1)) break;
    }
#pragma unroll
    for (int i = 0; i < 2; i++)
#pragma unroll
        for (int j = 0; j < 4; j++)
#pragma unroll
            for (int b = 0; b < 2; b++) {
                int row = wm + 16 * i + (lane >> 2) + 8 * b, p = n0 + wn + 8 * j + 2 * (lane & 3);
                float up = again ? back[row] : 1;
                if (row < t.n && p < rows) finish_pair(a, t, t.row + row, p, sum[i][j][2 * b] * up, sum[i][j][2 * b + 1] * up);
            }
}

/* Computes the same in f32, for weights that stay f32. Grid: (rows of W / 64, tiles), 256 threads of 4 x 4 outputs. Tiles lie column by
 * column in shared memory, so that a thread reads its 4 rows of either with one vector load. Twin: llm__run_linear. */
static __global__ void __launch_bounds__(256, 2) kernel_linear_f32(linear_args a) {
    grid_wait();
    SMEM(float, xs, 32 * 68);
    SMEM(float, ws, 32 * 68);
    tile t = tile_at(a, (int)blockIdx.y, TILE);
    int rows = group_rows(a), n0 = (int)blockIdx.x * TILE, tx = threadIdx.x & 15, ty = threadIdx.x >> 4;
    float sum[4][4] = {};
    if (!t.n) return;
    for (int sub = 0; sub < a.subs; sub++) {
        for (int k = threadIdx.x >> 5; k < TILE; k += 8) { /* a warp has 8 columns of 4 rows: whole sectors, and each bank once */
            int row = k / 4 * 4 + (threadIdx.x >> 3 & 3), i = k % 4 * 8 + (threadIdx.x & 7), c = sub * 32 + i;
            xs[i * 68 + row] = row < t.n && c < a.cols ? x_row(a, t, row)[c] : 0;
            ws[i * 68 + row] = n0 + row < rows ? ((const float *)a.w.q)[(group_row(a, t, n0 + row) * a.subs + sub) * 32 + i] : 0;
        }
        __syncthreads();
        for (int k = 0; k < 32; k++) {
            float4 u = *(const float4 *)(xs + k * 68 + ty * 4), v = *(const float4 *)(ws + k * 68 + tx * 4);
            const float xv[4] = {u.x, u.y, u.z, u.w}, wv[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
            for (int i = 0; i < 4; i++)
#pragma unroll
                for (int j = 0; j < 4; j++) sum[i][j] += xv[i] * wv[j];
        }
        __syncthreads();
    }
#pragma unroll
    for (int i = 0; i < 4; i++)
#pragma unroll
        for (int j = 0; j < 4; j += 2) {
            int row = ty * 4 + i, p = n0 + tx * 4 + j;
            if (row < t.n && p < rows) finish_pair(a, t, t.row + row, p, sum[i][j], sum[i][j + 1]);
        }
}

/* Twice as many warps share the columns where there are few rows of W, and shared memory for it; not of experts, whose tiles are many. */
template <int K, int T> static void launch_rows(rank *r, const linear_args &a, int rows, int tiles) {
    const int blocks = ceil_div(rows, 16 * ROWS_MT), most = ROWS_WARPS * rows_warp_smem<K, X_ROWS>();
    const int wide = !a.begin && r->capability / 10 == 9 && blocks < 2 * r->n_sms && most <= r->max_smem - 2048,
              warps = wide ? ROWS_WARPS : ROWS_WARPS / 2;
    launch<kernel_linear_rows<K, T>>(r, dim3((unsigned)tiles, (unsigned)blocks), 32 * warps, (size_t)(warps * rows_warp_smem<K, T>()), a);
}

static constexpr int FEW_ROWS = 8; /* up to so many rows a product takes the norm before it, see list_fuse */
static int few_rows(const rank *r, int rows) { return rows <= FEW_ROWS && !r->ctx->cfg.batch_invariant; }

/* Rows of x a tile, of n in all, where a group has about `each`: as many as its kernel takes, and no more than needed. */
static int tile_rows(const rank *r, const linear_args &a, int n, int each) {
    const int invariant = r->ctx->cfg.batch_invariant;
    if (a.w.kind == KIND_F32) return each <= 1 && !a.begin && !invariant ? 1 : few_rows(r, each) ? 4 : TILE;
    if (a.begin && each > 16 && !invariant) return TILE;
    return (n <= 1 || (a.begin && n <= 8)) && !(invariant && kind_16bit(a.w.kind)) ? 1 : X_ROWS; /* a row, or an expert of a row */
}

/* One part, with so many of its rows in a group, and tiles of so many rows of x. */
static void launch_product(rank *r, const linear_args &a, int rows, int size, int tiles) {
    const dim3 wide((unsigned)ceil_div(rows, TILE), (unsigned)tiles), few((unsigned)ceil_div(rows, 16), (unsigned)tiles);
    with_constant<0, KIND_COUNT - 1>(a.w.kind, [&](auto kind) {
        constexpr int K = kind.value;
        if constexpr (K == KIND_F32) {
            if (size == 1) launch<kernel_linear_few<K, 1>>(r, few, 256, 0, a);
            else if (size == 4) launch<kernel_linear_few<K, 4>>(r, few, 256, 0, a);
            else launch<kernel_linear_f32>(r, wide, 256, 0, a);
        } else if (size == TILE) launch<kernel_linear_mma<K>>(r, wide, 128, 0, a);
        else if constexpr (kind_16bit(K)) {
            if (size == 1) launch<kernel_linear_few<K, 1>>(r, few, 256, 0, a);
            else launch_rows<K, X_ROWS>(r, a, rows, tiles);
        } else if (size == 1) launch_rows<K, 1>(r, a, rows, tiles);
        else launch_rows<K, X_ROWS>(r, a, rows, tiles);
    });
}
