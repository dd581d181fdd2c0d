/* Task Bench's graphs under OpenMP: tasks with depend clauses, or a parallel loop with a barrier a timestep.
 *
 *   openmp_tasks task|for|task-as-ours|for-as-ours compute|memory WIDTH TIMESTEPS MAX_GRAIN POINT_S GIVE_UP STREAM_BYTES
 *       < dependencies
 *
 * The first two are written as usual. The other two make the same calls and records as gpt2core.schedulers.openmp: each
 * task is called through a table and timed, each wait is timed, and at most two passes over the TIMESTEPS overlap. They
 * then differ from ours only by the cost of calling a runtime's entry points without a compiler.
 *
 * Standard input: for each timestep and point the number of its inputs, then their points. After TIMESTEPS timesteps
 * the pattern repeats, as in gpt2core.taskbench: the same graph, kernels, validation and cells.
 * Output: a line "grain tasks elapsed_s violations" for each grain, falling by halves from MAX_GRAIN until the rate is
 * below GIVE_UP of the first. One thread creates all tasks in program order, as in Task Bench's OpenMP version.
 */
#include <omp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

enum { VECTORS = 8, LANES = 8, CHUNK = 64, CAPACITY = 256 };
static const size_t HUGE_PAGE = 2u << 20;

typedef double vector __attribute__((vector_size(LANES * sizeof(double))));
typedef struct { int64_t timestep, point; double result; int64_t violations; char line[32]; } cell;
typedef struct { int count, point[CAPACITY]; } inputs_of;

static int width, timesteps, memory_kernel, as_tasks, as_ours;
static cell *cells;
static inputs_of *inputs;
static char *sink; /* of each task of a pass: whether no other one waits for it */
static long chunks, due = 0; /* of each thread's buffer; iterations that all threads should have done */
static struct { double *buffer; long streamed; char line[48]; } *own_stream; /* of each thread */

static double multiply_add(long iterations) {
    vector a[VECTORS], factor, summand;
    for (int lane = 0; lane < LANES; lane++) {
        factor[lane] = 0.999;
        summand[lane] = 0.001;
        for (int i = 0; i < VECTORS; i++) a[i][lane] = 1.0 + LANES * i + lane;
    }
    for (long n = 0; n < iterations; n++) {
#pragma GCC unroll 8
        for (int i = 0; i < VECTORS; i++) a[i] = a[i] * factor + summand;
    }
    for (int i = 1; i < VECTORS; i++) a[0] += a[i];
    double sum = 0.0;
    for (int lane = 0; lane < LANES; lane++) sum += a[0][lane];
    return sum;
}

static double stream(long iterations) {
    int thread = omp_get_thread_num();
    long chunk = own_stream[thread].streamed % chunks;
    for (long n = 0; n < iterations; n++) {
        double *part = own_stream[thread].buffer + chunk * CHUNK;
        for (int i = 0; i < CHUNK; i++) part[i] += 1.0;
        chunk = chunk + 1 < chunks ? chunk + 1 : 0;
    }
    return own_stream[thread].streamed += iterations;
}

/* As in gpt2core.taskbench: with huge pages advised, and each thread's buffer touched first by that thread. */
static void new_streams(long bytes) {
    chunks = bytes / (long)sizeof(double) / CHUNK;
    own_stream = aligned_alloc(64, omp_get_max_threads() * sizeof *own_stream);
    if (!own_stream) exit(1);
#pragma omp parallel
    {
        size_t size = (chunks * CHUNK * sizeof(double) + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE;
        double *buffer = aligned_alloc(HUGE_PAGE, size);
        if (!buffer) exit(1);
        madvise(buffer, size, MADV_HUGEPAGE);
        memset(buffer, 0, size);
        own_stream[omp_get_thread_num()].buffer = buffer;
        own_stream[omp_get_thread_num()].streamed = 0;
    }
}

/* Missing or surplus iterations, plus the buffers' numbers that differ from their thread's passes over them. */
static long wrong_numbers(void) {
    long wrong = -due;
    for (int thread = 0; thread < omp_get_max_threads(); thread++) wrong += own_stream[thread].streamed;
    wrong = labs(wrong);
    for (int thread = 0; thread < omp_get_max_threads(); thread++) {
        long passes = own_stream[thread].streamed / chunks, rest = own_stream[thread].streamed % chunks;
        for (long i = 0; i < chunks * CHUNK; i++)
            wrong += own_stream[thread].buffer[i] != (double)(passes + (i < rest * CHUNK));
    }
    return wrong;
}

static inline cell *at(int timestep, int point) { return &cells[(long)timestep * width + point]; }

static void run_point(long now, int point, long grain) {
    int timestep = (int)(now % timesteps), before = (timestep ? timestep : timesteps) - 1;
    const inputs_of *in = &inputs[timestep * width + point];
    cell *own = at(timestep, point);
    for (int i = 0; i < in->count; i++) {
        const cell *read = at(before, in->point[i]);
        if (read->timestep != now - 1 || read->point != in->point[i]) own->violations++;
    }
    own->result = memory_kernel ? stream(grain) : multiply_add(grain);
    own->timestep = now;
    own->point = point;
}

typedef void entry(long now, int point, long grain);
static entry **table; /* of each task of a pass */
static struct { uint64_t last_begin, busy, calls, first, last, waited; char line[80]; } *noted; /* by each thread */

static inline uint64_t ticks(void) {
#ifdef __x86_64__
    return __builtin_ia32_rdtsc();
#else
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000ull + now.tv_nsec;
#endif
}

/* Call a task through the table and record its times, as gpt2core.schedulers.dispatch.run_task does. */
static void run_noted(int thread, long now, int point, long grain) {
    uint64_t begin = ticks();
    __atomic_load_n(&table[now % timesteps * width + point], __ATOMIC_RELAXED)(now, point, grain);
    uint64_t end = ticks();
    noted[thread].busy += end - begin;
    noted[thread].calls++;
    if (!noted[thread].first) noted[thread].first = begin;
    noted[thread].last = end;
    noted[thread].last_begin = begin;
}

/* Depend clauses of up to six inputs are written out, as in Task Bench; more inputs use an iterator. */
#define IN(i) read[i][0]
#define CREATE_(BODY, ...) _Pragma(TEXT(omp task firstprivate(now, x, grain) depend(out : own[0]) __VA_ARGS__)) BODY
#define CREATE(...) \
    if (as_ours) { CREATE_(run_noted(omp_get_thread_num(), now, x, grain);, __VA_ARGS__) } \
    else { CREATE_(run_point(now, x, grain);, __VA_ARGS__) }
#define TEXT(...) TEXT_(__VA_ARGS__)
#define TEXT_(...) #__VA_ARGS__

static void create(long now, int x, long grain, const cell *end) {
    int timestep = (int)(now % timesteps), before = (timestep ? timestep : timesteps) - 1;
    const inputs_of *in = &inputs[timestep * width + x];
    const cell *own = at(timestep, x), *read[CAPACITY + 1];
    int count = in->count;
    for (int i = 0; i < count; i++) read[i] = at(before, in->point[i]);
    if (end && sink[timestep * width + x]) read[count++] = end;
    (void)own, (void)read; /* GCC does not count a depend clause as a use */
    switch (count) {
    case 0: CREATE() break;
    case 1: CREATE(depend(in : IN(0))) break;
    case 2: CREATE(depend(in : IN(0), IN(1))) break;
    case 3: CREATE(depend(in : IN(0), IN(1), IN(2))) break;
    case 4: CREATE(depend(in : IN(0), IN(1), IN(2), IN(3))) break;
    case 5: CREATE(depend(in : IN(0), IN(1), IN(2), IN(3), IN(4))) break;
    case 6: CREATE(depend(in : IN(0), IN(1), IN(2), IN(3), IN(4), IN(5))) break;
    default: CREATE(depend(iterator(int i = 0 : count), in : IN(i))) break;
    }
}

/* As in gpt2core.schedulers.openmp.task_loop, a task ends each pass; a pass begins once the last but one has ended. */
static double run_tasks_as_ours(long first, long last, long grain) {
    static cell ends[2], loss;
    volatile uint64_t ended = 0;
    double begin = 0.0, end = 0.0;
#pragma omp parallel
    {
#pragma omp barrier
#pragma omp master
        {
            begin = omp_get_wtime();
            for (long now = first; now < last; now += timesteps) {
                cell *own = &ends[now / timesteps & 1], *before = &ends[!(now / timesteps & 1)];
                for (long each = now; each < now + timesteps; each++)
                    for (int x = 0; x < width; x++) create(each, x, grain, own);
                (void)own, (void)before, (void)ended; /* as above */
#pragma omp task shared(ended) depend(out : own[0]) depend(in : before[0])
                ended = ticks();
#if defined(__clang__) && __clang_major__ < 17
#pragma omp task if (0) depend(out : loss) depend(in : before[0])
                {}
#else
#pragma omp taskwait depend(out : loss) depend(in : before[0])
#endif
            }
        }
#pragma omp barrier
#pragma omp master
        end = omp_get_wtime();
    }
    (void)loss;
    return end - begin;
}

/* As in gpt2core.schedulers.openmp.for_loop, each thread times its tasks and its waits for the others. */
static double run_loop_as_ours(long first, long last, long grain) {
    double begin = 0.0, end = 0.0;
#pragma omp parallel
    {
        int thread = omp_get_thread_num(), threads = omp_get_num_threads();
        int each = width / threads, more = width % threads, mine = each * thread + (thread < more ? thread : more);
        uint64_t since = 0;
#pragma omp barrier
#pragma omp master
        begin = omp_get_wtime();
        for (long now = first; now < last; now++) {
            for (int x = mine; x < mine + each + (thread < more); x++) {
                run_noted(thread, now, x, grain);
                if (since) noted[thread].waited += noted[thread].last_begin - since;
                since = 0;
            }
            if (since) noted[thread].waited += ticks() - since;
            since = ticks();
#pragma omp barrier
        }
#pragma omp master
        end = omp_get_wtime();
    }
    return end - begin;
}

/* Seconds of timesteps `first` to `last`; the clock starts once all threads of the team have arrived. */
static double run(long first, long last, long grain) {
    if (as_ours) return (as_tasks ? run_tasks_as_ours : run_loop_as_ours)(first, last, grain);
    double begin = 0.0, end = 0.0;
    if (as_tasks) {
#pragma omp parallel
        {
#pragma omp barrier
#pragma omp single
            {
                begin = omp_get_wtime();
                for (long now = first; now < last; now++)
                    for (int x = 0; x < width; x++) create(now, x, grain, NULL);
#pragma omp taskwait
                end = omp_get_wtime();
            }
        }
    } else {
#pragma omp parallel
        {
#pragma omp barrier
#pragma omp master
            begin = omp_get_wtime();
            for (long now = first; now < last; now++) {
#pragma omp for schedule(static)
                for (int x = 0; x < width; x++) run_point(now, x, grain);
            }
#pragma omp master
            end = omp_get_wtime();
        }
    }
    return end - begin;
}

/* One run: a warm-up iteration, then `iterations` that are timed. */
static double measure(long grain, long iterations) {
    for (long i = 0; i < (long)timesteps * width; i++) cells[i].timestep = -2;
    for (int x = 0; x < width; x++) {
        at(timesteps - 1, x)->timestep = -1;
        at(timesteps - 1, x)->point = x;
    }
    run(0, timesteps, grain);
    double elapsed_s = run(timesteps, (iterations + 1) * timesteps, grain);
    due += (iterations + 1) * timesteps * width * grain;
    return elapsed_s;
}

static long violations(long iterations) {
    long found = 0;
    for (int t = 0; t < timesteps; t++)
        for (int x = 0; x < width; x++)
            found += at(t, x)->violations + (at(t, x)->timestep != iterations * timesteps + t);
    return memory_kernel ? found + wrong_numbers() : found;
}

static long between(double value, long low, long high) {
    return value < low ? low : value > high ? high : (long)value;
}

int main(int count, char **argument) {
    if (count != 9) {
        fprintf(stderr, "usage: %s task|for|task-as-ours|for-as-ours compute|memory WIDTH TIMESTEPS MAX_GRAIN POINT_S GIVE_UP STREAM_BYTES\n", argument[0]);
        return 2;
    }
    as_tasks = !strncmp(argument[1], "task", 4);
    as_ours = strstr(argument[1], "-as-ours") != NULL;
    memory_kernel = !strcmp(argument[2], "memory");
    width = atoi(argument[3]);
    timesteps = atoi(argument[4]);
    long grain = atol(argument[5]);
    double point_s = atof(argument[6]), give_up = atof(argument[7]), first_rate = 0.0;
    long size = (long)width * timesteps;
    cells = aligned_alloc(64, size * sizeof(cell));
    inputs = malloc(size * sizeof(inputs_of));
    sink = malloc(size);
    table = malloc(size * sizeof *table);
    noted = calloc(omp_get_max_threads(), sizeof *noted);
    if (!cells || !inputs || !sink || !table || !noted) return 1;
    memset(cells, 0, size * sizeof(cell));
    for (long i = 0; i < size; i++) {
        if (scanf("%d", &inputs[i].count) != 1 || inputs[i].count < 0 || inputs[i].count > CAPACITY) return 2;
        for (int j = 0; j < inputs[i].count; j++)
            if (scanf("%d", &inputs[i].point[j]) != 1 || inputs[i].point[j] < 0 || inputs[i].point[j] >= width) return 2;
    }
    for (long i = 0; i < size; i++) {
        sink[i] = i >= width || !inputs[i].count; /* what the first timestep read is written by the last one */
        table[i] = run_point;
    }
    for (long i = width; i < size; i++)
        for (int j = 0; j < inputs[i].count; j++) sink[(i / width - 1) * width + inputs[i].point[j]] = 0;
    if (memory_kernel) new_streams(atol(argument[8]));
    for (; grain > 0; grain /= 2) {
        double estimate_s = measure(grain, 2) / 2;
        if (estimate_s * 2 < point_s / 10) {
            long some = between(point_s / 10 / estimate_s, 2, 50000);
            estimate_s = measure(grain, some) / some;
        }
        long iterations = between(point_s / estimate_s + 0.5, 2, 50000);
        double elapsed_s = measure(grain, iterations), rate = grain * iterations / elapsed_s;
        printf("%ld %ld %.9f %ld\n", grain, iterations * size, elapsed_s, violations(iterations));
        fflush(stdout);
        if (first_rate == 0.0) first_rate = rate;
        if (rate < give_up * first_rate) break;
    }
    return 0;
}
