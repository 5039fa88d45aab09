package io.hayloft.pfs.copies;

import io.hayloft.pfs.write.Sink;
import java.io.IOException;
import java.nio.channels.FileChannel;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.nio.file.StandardOpenOption;
import java.nio.file.attribute.FileTime;
import java.util.ArrayList;
import java.util.List;
import java.util.UUID;

/**
 * Gives a file the copies that its directory wants, from one that is complete. Of a sealed file
 * any complete copy will do; a file that is not sealed, or was changed by another program, is
 * right as it is.
 */
public final class Heal {
  private static final int COPY_BYTES = 8 << 20;

  private final Copies copies;
  private final long youngestMs;
  private final boolean readsContent;

  /**
   * Leaves files alone that changed within {@code youngestMs}, as a writer may be at work; with
   * {@code readsContent} it does not trust lengths, and compares every copy with the file.
   */
  public Heal(Copies copies, long youngestMs, boolean readsContent) {
    this.copies = copies;
    this.youngestMs = youngestMs;
    this.readsContent = readsContent;
  }

  /** What came of it. */
  public enum Outcome {
    HEALED,
    TOO_YOUNG
  }

  /** Heals one file that {@link Fsck} found something wrong with. */
  public Outcome heal(Path file) throws IOException {
    Stat before = Stat.of(file);
    CopyRecord record = copies.read(file, CopyRecord.FILE);
    CopyRecord seal = record == null ? null : copies.validSeal(file);
    if (seal == null && System.currentTimeMillis() - before.modifiedMs() < youngestMs) {
      return Outcome.TOO_YOUNG;
    }
    Path good = seal == null ? file : complete(file, seal);
    if (!good.equals(file)) {
      replaceFirst(file, before, record, good);
      before = Stat.of(file);
      record = copies.read(file, CopyRecord.FILE);
    }
    if (record == null) {
      record =
          new CopyRecord(
              UUID.randomUUID(), before.inode(), "", List.of(), 0, before.modifiedMs());
    }
    record = widened(file, record);
    Attribute.remove(file, CopyRecord.SEAL);
    Attribute.write(file, CopyRecord.FILE, record.toString());
    List<String> done = new ArrayList<>();
    for (Target target : copies.targetsOf(record)) {
      boolean trusted = seal != null && seal.copies().contains(target.name());
      bring(file, before, record, target, trusted);
      done.add(target.name());
    }
    Stat after = Stat.of(file);
    if (after.length() != before.length() || after.modifiedMs() != before.modifiedMs()) {
      throw new IOException(file + " was changed while it was healed: heal it again");
    }
    copies.seal(file, record, done);
    return Outcome.HEALED;
  }

  /** The file if it is complete, else the first copy that is. */
  private Path complete(Path file, CopyRecord seal) throws IOException {
    List<Path> candidates = new ArrayList<>(List.of(file));
    copies.targetsOf(seal).forEach(target -> candidates.add(copies.copy(target, seal)));
    for (Path candidate : candidates) {
      Stat stat = Stat.find(candidate);
      if (stat != null && stat.length() == seal.length() && checksum(candidate) != null) {
        return candidate;
      }
    }
    throw new IOException(
        file + ": no copy is complete; restore it from elsewhere, or accept the file as it is by"
            + " removing its attribute user.hayloft.pfs.seal");
  }

  /** Of every byte; null if some cannot be read. */
  private static Long checksum(Path candidate) {
    try {
      return Fsck.checksum(candidate);
    } catch (IOException e) {
      return null;
    }
  }

  /** The record with as many copies as the directory wants, on servers that have none yet. */
  private CopyRecord widened(Path file, CopyRecord record) throws IOException {
    Policies.Policy policy = copies.policy(file.getParent());
    List<String> names = new ArrayList<>();
    copies.targetsOf(record).forEach(target -> names.add(target.name()));
    List<Target> free = new ArrayList<>();
    for (Target target : copies.targets()) {
      if (!names.contains(target.name()) && !target.name().equals(record.first())) {
        free.add(target);
      }
    }
    int missing = Math.max(0, policy.copies() - 1 - names.size());
    if (missing > free.size()) {
      throw new IOException(
          file + " should have " + policy.copies() + " copies, and fs.pfs.targets has "
              + copies.targets().size() + " servers");
    }
    CopyLayout.ROUND_ROBIN
        .choose(free, missing, copies.localHost())
        .forEach(target -> names.add(target.name()));
    return new CopyRecord(
        record.uuid(), record.inode(), record.first(), names, 0, record.modifiedMs());
  }

  private void bring(
      Path file, Stat stat, CopyRecord record, Target target, boolean trusted)
      throws IOException {
    Path copy = copies.copy(target, record);
    Stat there = Stat.find(copy);
    if (there != null && there.length() == stat.length()) {
      Long sum = checksum(copy);
      boolean lengthWillDo = trusted && !readsContent;
      if (sum != null && (lengthWillDo || sum == Fsck.checksum(file))) {
        return;
      }
    }
    Path fresh = fresh(target, record);
    write(file, stat, target, fresh);
    Files.move(fresh, copy, StandardCopyOption.ATOMIC_MOVE);
  }

  private static Path fresh(Target target, CopyRecord record) {
    return target.directory().resolve(record.uuid() + ".heal-" + UUID.randomUUID());
  }

  /** Puts a good copy in the place of the file itself, with all that the file had. */
  private void replaceFirst(Path file, Stat stat, CopyRecord record, Path good)
      throws IOException {
    Target target = copies.firstTarget(record).orElse(copies.targets().get(0));
    Path fresh = fresh(target, record);
    write(good, stat, target, fresh);
    Files.setAttribute(fresh, "unix:gid", Files.getAttribute(file, "unix:gid"));
    Files.setLastModifiedTime(fresh, FileTime.fromMillis(stat.modifiedMs()));
    Attribute.copyAll(file, fresh);
    CopyRecord moved =
        new CopyRecord(
            record.uuid(), Stat.of(fresh).inode(), target.name(), record.copies(), 0, 0);
    Attribute.write(fresh, CopyRecord.FILE, moved.toString());
    Attribute.remove(fresh, CopyRecord.SEAL);
    Files.move(fresh, file, StandardCopyOption.ATOMIC_MOVE);
  }

  private static void write(Path from, Stat stat, Target target, Path to) throws IOException {
    try (Sink sink = Copies.createIn(target, to, stat.mode());
        FileChannel source = FileChannel.open(from, StandardOpenOption.READ)) {
      long size = source.size();
      long at = 0;
      while (at < size) {
        long moved = source.transferTo(at, Math.min(COPY_BYTES, size - at), sink.channel());
        if (moved <= 0) {
          throw new IOException(from + " ends at " + at + " of " + size + " bytes");
        }
        at += moved;
      }
      sink.channel().force(true);
      if (!Files.getAttribute(to, "unix:uid").equals(stat.uid())) {
        Files.setAttribute(to, "unix:uid", stat.uid());
      }
    } catch (IOException e) {
      Files.deleteIfExists(to);
      throw e;
    }
  }
}
