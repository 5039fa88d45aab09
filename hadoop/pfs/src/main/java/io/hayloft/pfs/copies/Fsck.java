package io.hayloft.pfs.copies;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.file.DirectoryIteratorException;
import java.nio.file.DirectoryStream;
import java.nio.file.FileVisitResult;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.nio.file.SimpleFileVisitor;
import java.nio.file.StandardOpenOption;
import java.nio.file.attribute.BasicFileAttributes;
import java.util.HashSet;
import java.util.Set;
import java.util.UUID;
import java.util.function.Consumer;
import java.util.zip.CRC32C;

/** Compares files with their copies, and finds copies that no file has. */
public final class Fsck {
  private static final int READ_BUFFER = 1 << 20;

  private final Copies copies;
  private final boolean readsContent;
  private final Consumer<Finding> findings;
  private final Set<UUID> seen = new HashSet<>();
  private long files;
  private boolean sawAll = true;

  /** What can be wrong. */
  public enum Problem {
    /** The directory wants more copies than the file has. */
    TOO_FEW,
    /** Written by a process that did not get to its end, or is still at it. */
    UNSEALED,
    /** Changed by another program since it was sealed. */
    CHANGED,
    /** The file itself does not have the length that was sealed, or cannot be read. */
    FIRST_DAMAGED,
    /** A copy is not there. */
    MISSING,
    /** A copy has another length, or cannot be read. */
    DAMAGED,
    /** A copy has the right length and other bytes; only looked for when asked. */
    DIFFERENT,
    /** A copy that no file names. */
    ORPHAN,
    /** A file or directory that could not be looked at; {@code where} says why. */
    UNREADABLE
  }

  /** Something wrong with {@code file}; {@code where} names the server, or the copy. */
  public record Finding(Path file, Problem problem, String where) {}

  /** {@code readsContent} compares bytes too. */
  public Fsck(Copies copies, boolean readsContent, Consumer<Finding> findings) {
    this.copies = copies;
    this.readsContent = readsContent;
    this.findings = findings;
  }

  /** Files that were looked at. */
  public long files() {
    return files;
  }

  /** Whether there was nothing that could not be looked at. */
  public boolean sawAll() {
    return sawAll;
  }

  /** Looks at a file or a tree. What it may not read it reports, and goes on. */
  public void check(Path top) throws IOException {
    Files.walkFileTree(
        top,
        new SimpleFileVisitor<>() {
          @Override
          public FileVisitResult preVisitDirectory(Path directory, BasicFileAttributes attributes) {
            return copies.isTarget(directory)
                ? FileVisitResult.SKIP_SUBTREE
                : FileVisitResult.CONTINUE;
          }

          @Override
          public FileVisitResult visitFile(Path file, BasicFileAttributes attributes) {
            try {
              if (attributes.isRegularFile()) {
                checkFile(file);
              }
            } catch (IOException e) {
              reportUnlessGone(file, e);
            }
            return FileVisitResult.CONTINUE;
          }

          @Override
          public FileVisitResult visitFileFailed(Path file, IOException e) throws IOException {
            if (file.equals(top)) {
              throw e;
            }
            reportUnlessGone(file, e);
            return FileVisitResult.CONTINUE;
          }

          @Override
          public FileVisitResult postVisitDirectory(Path directory, IOException e) {
            if (e != null) {
              reportUnreadable(directory, e);
            }
            return FileVisitResult.CONTINUE;
          }
        });
  }

  private void checkFile(Path file) throws IOException {
    files++;
    CopyRecord record = copies.read(file, CopyRecord.FILE);
    int wanted = copies.policy(file.getParent()).copies();
    if (record == null) {
      if (wanted > 1) {
        report(file, Problem.TOO_FEW, "1 of " + wanted);
      }
      return;
    }
    seen.add(record.uuid());
    CopyRecord seal = copies.read(file, CopyRecord.SEAL);
    if (seal == null) {
      report(file, Problem.UNSEALED, "");
      return;
    }
    Stat now = Stat.of(file);
    if (now.modifiedMs() != seal.modifiedMs()) {
      report(file, Problem.CHANGED, "");
      return;
    }
    Long sum = checkCopy(file, file, seal, Problem.FIRST_DAMAGED, record.first(), null);
    Set<String> names = new HashSet<>(record.copies());
    names.addAll(seal.copies());
    for (String name : names) {
      Target target = Target.of(copies.targets(), name).orElse(null);
      if (target == null) {
        report(file, Problem.MISSING, name);
      } else if (!seal.copies().contains(name)) {
        boolean there = Stat.find(copies.copy(target, seal)) != null;
        report(file, there ? Problem.DAMAGED : Problem.MISSING, name);
      } else {
        checkCopy(file, copies.copy(target, seal), seal, Problem.DAMAGED, name, sum);
      }
    }
    if (names.size() + 1 < wanted) {
      report(file, Problem.TOO_FEW, names.size() + 1 + " of " + wanted);
    }
  }

  /** The first copy is the file itself. Gives the checksum if content is read and can be. */
  private Long checkCopy(
      Path file, Path copy, CopyRecord seal, Problem problem, String where, Long expected)
      throws IOException {
    Stat stat = Stat.find(copy);
    if (stat == null) {
      report(file, Problem.MISSING, where);
      return null;
    }
    if (stat.length() != seal.length()) {
      report(file, problem, where);
      return null;
    }
    if (!readsContent) {
      return null;
    }
    try {
      long sum = checksum(copy);
      if (expected != null && sum != expected) {
        report(file, Problem.DIFFERENT, where);
      }
      return sum;
    } catch (IOException e) {
      report(file, problem, where);
      return null;
    }
  }

  static long checksum(Path file) throws IOException {
    CRC32C sum = new CRC32C();
    ByteBuffer buffer = ByteBuffer.allocate(READ_BUFFER);
    try (FileChannel channel = FileChannel.open(file, StandardOpenOption.READ)) {
      while (channel.read(buffer.clear()) > 0) {
        sum.update(buffer.flip());
      }
    }
    return sum.getValue();
  }

  /** A file that went while fsck looked is no finding. */
  private void reportUnlessGone(Path file, IOException e) {
    if (!(e instanceof NoSuchFileException)) {
      reportUnreadable(file, e);
    }
  }

  private void reportUnreadable(Path file, IOException e) {
    sawAll = false;
    report(file, Problem.UNREADABLE, e.toString());
  }

  private void report(Path file, Problem problem, String where) {
    findings.accept(new Finding(file, problem, where));
  }

  /** Finds copies of no file. Only right after the whole root was checked, and all was seen. */
  public void checkOrphans() {
    for (Target target : copies.targets()) {
      try (DirectoryStream<Path> entries = Files.newDirectoryStream(target.directory())) {
        for (Path entry : entries) {
          if (!isKnown(entry.getFileName().toString())) {
            report(entry, Problem.ORPHAN, target.host());
          }
        }
      } catch (DirectoryIteratorException e) {
        reportUnreadable(target.directory(), e.getCause());
      } catch (IOException e) {
        reportUnreadable(target.directory(), e);
      }
    }
  }

  private boolean isKnown(String name) {
    try {
      return seen.contains(UUID.fromString(name));
    } catch (IllegalArgumentException e) {
      return false;
    }
  }
}
