/* Threads that write to ranges beside each other, through the table of `raw`: each range must be as
 * its own writes left it, and what lies between them as it was. Exit status 0: so it is. */
#include "../../../../plugins/raw.c"

#define THREADS 4
#define RANGES 8 /* of each thread */
#define LEN 77   /* many are in one block */
#define GAP 11   /* between two, written by none */
#define ROUNDS 60
#define BEGIN ((2u << 20) + 5)

static void *file;
static const struct hayloft_engine *engine;

static uint64_t place(int thread, int range) {
  return BEGIN + (uint64_t)(range * THREADS + thread) * (LEN + GAP);
}

static void all(int writes, void *bytes, uint64_t count, uint64_t at) {
  for (uint64_t done = 0; done < count;) {
    int64_t n = writes ? engine->write(file, (char *)bytes + done, count - done, at + done)
                       : engine->read(file, (char *)bytes + done, count - done, at + done);
    if (n <= 0) {
      fprintf(stderr, "%lld: %s\n", (long long)n, engine->last_error());
      exit(3);
    }
    done += (uint64_t)n;
  }
}

static void *work(void *argument) {
  int thread = (int)(intptr_t)argument;
  char bytes[LEN], there[LEN];
  for (int round = 1; round <= ROUNDS; round++)
    for (int range = 0; range < RANGES; range++) {
      memset(bytes, THREADS * round + thread, LEN);
      all(1, bytes, LEN, place(thread, range));
      all(0, there, LEN, place(thread, range));
      if (memcmp(bytes, there, LEN))
        exit(1);
    }
  return NULL;
}

int main(int count, char **words) {
  engine = hayloft_engine();
  void *volume;
  if (count != 3 || engine->open_volume(words[1], words[2], &volume) ||
      engine->open(volume, words[1], HAYLOFT_READ_WRITE, &file)) {
    fprintf(stderr, "%s\n", engine->last_error() ? engine->last_error() : "usage");
    return 2;
  }
  static char odd[3 << 20], back[3 << 20];
  memset(odd, 0x77, sizeof odd);
  all(1, odd + 1, sizeof odd - 1, BEGIN - 3);
  pthread_t threads[THREADS];
  for (intptr_t i = 0; i < THREADS; i++)
    pthread_create(&threads[i], NULL, work, (void *)i);
  for (int i = 0; i < THREADS; i++)
    pthread_join(threads[i], NULL);
  all(0, back + 2, sizeof back - 2, BEGIN - 3);
  for (int range = 0; range < RANGES; range++)
    for (int thread = 0; thread < THREADS; thread++)
      memset(odd + 1 + (place(thread, range) - (BEGIN - 3)), THREADS * ROUNDS + thread, LEN);
  int same = memcmp(odd + 1, back + 2, sizeof odd - 2) == 0;
  engine->close(file);
  engine->close_volume(volume);
  return same ? 0 : 1;
}
