/* What a device has on it that is not Hayloft's. Only raw.c includes it.
 *
 * Numbers are those of the formats. A device of Hayloft's has blocks of users at its end, so only
 * its first MiB is looked at: nothing but the node writes there. */
#define EDGE (1u << 20) /* bytes at each end that are looked at */

struct signature {
  const char *word; /* as the option wipe= has it */
  int at_end;       /* `at` counts from the end of the device */
  uint32_t at;
  uint32_t len;
  const char *bytes;
};

static const struct signature signatures[] = {
    {"xfs", 0, 0, 4, "XFSB"},
    {"luks", 0, 0, 6, "LUKS\xba\xbe"},
    {"luks", 0, 16384, 6, "SKUL\xba\xbe"},
    {"bluestore", 0, 0, 22, "bluestore block device"},
    {"gpt", 0, 512, 8, "EFI PART"},
    {"gpt", 0, 4096, 8, "EFI PART"},
    {"lvm", 0, 0, 8, "LABELONE"},
    {"lvm", 0, 512, 8, "LABELONE"},
    {"lvm", 0, 1024, 8, "LABELONE"},
    {"lvm", 0, 1536, 8, "LABELONE"},
    {"f2fs", 0, 1024, 4, "\x10\x20\xf5\xf2"},
    {"ext", 0, 1080, 2, "\x53\xef"},
    {"md", 0, 0, 4, "\xfc\x4e\x2b\xa9"},
    {"md", 0, 4096, 4, "\xfc\x4e\x2b\xa9"},
    {"swap", 0, 4086, 10, "SWAPSPACE2"},
    {"swap", 0, 16374, 10, "SWAPSPACE2"},
    {"swap", 0, 65526, 10, "SWAPSPACE2"},
    {"bcache", 0, 4120, 8, "\xc6\x85\x73\xf6\x4e\x1a\x45\xca"},
    {"iso9660", 0, 32769, 5, "CD001"},
    {"jfs", 0, 32768, 4, "JFS1"},
    {"reiserfs", 0, 65588, 6, "ReIsEr"},
    {"btrfs", 0, 65600, 8, "_BHRfS_M"},
    {"gpt", 1, 512, 8, "EFI PART"},
    {"gpt", 1, 4096, 8, "EFI PART"},
    /* Last: boot sectors of other formats end so too. */
    {"mbr", 0, 510, 2, "\x55\xaa"},
};

/* The four labels of ZFS have rings of blocks, each of which begins with the number in the order of
 * its machine. Two labels are at each end, the last ones in the last 256 KiB that are whole. */
static int has_zfs(const unsigned char *labels) {
  const size_t label = 256u << 10, ring = 128u << 10;
  for (size_t at = ring; at < 2 * label; at += at % label == label - 1024 ? ring + 1024 : 1024)
    if (memcmp(labels + at, "\x0c\xb1\xba\0\0\0\0\0", 8) == 0 ||
        memcmp(labels + at, "\0\0\0\0\0\xba\xb1\x0c", 8) == 0)
      return 1;
  return 0;
}

/* Version 0.90 of md is in the last 64 KiB but one that are whole, 1.0 before the last 8 KiB. */
static int has_md_at_end(const unsigned char *end, uint64_t size) {
  uint64_t old = (size & ~(uint64_t)65535) - 65536, new = (size - 8192) & ~(uint64_t)4095;
  const uint64_t places[] = {old, new};
  for (int i = 0; i < 2; i++)
    if (memcmp(end + (places[i] - (size - EDGE)), "\xfc\x4e\x2b\xa9", 4) == 0)
      return 1;
  return 0;
}

static int is_blank(const unsigned char *edge) {
  return edge[0] == 0 && memcmp(edge, edge + 1, EDGE - 1) == 0;
}

/* Whether one of the two headers of Hayloft is there; the node looks whose it is, and that nothing
 * else is in this MiB. */
static int has_header(const unsigned char *head) {
  return memcmp(head, "HAYLOFT", 7) == 0 || memcmp(head + EDGE / 4 * 3, "HAYLOFT", 7) == 0;
}

/* What there is of others: a word of the table, `zfs`, or `data` for what is not known. NULL:
 * nothing. */
static const char *others(const unsigned char *head, const unsigned char *end, uint64_t size) {
  int ours = has_header(head);
  for (size_t i = 0; i < sizeof signatures / sizeof *signatures; i++) {
    const struct signature *s = &signatures[i];
    const unsigned char *at = s->at_end ? end + EDGE - s->at : head + s->at;
    if (!(ours && s->at_end) && memcmp(at, s->bytes, s->len) == 0)
      return s->word;
  }
  if (has_zfs(head))
    return "zfs";
  if (ours)
    return NULL;
  if (has_zfs(end + EDGE - (512u << 10) - size % (256u << 10)))
    return "zfs";
  if (has_md_at_end(end, size))
    return "md";
  return is_blank(head) && is_blank(end) ? NULL : "data";
}
