package io.hayloft.pfs.copies;

import io.hayloft.pfs.write.Sink;
import java.io.IOException;
import java.nio.channels.FileChannel;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.nio.file.StandardOpenOption;
import java.nio.file.attribute.PosixFilePermissions;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.Set;
import java.util.UUID;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Copies of files. The file itself is the first copy; the others are files of the targets, named
 * by a uuid that an attribute of the first has, so a rename touches nothing but the first. All
 * calls block as long as the mount does.
 */
public final class Copies {
  private static final Logger LOG = LoggerFactory.getLogger(Copies.class);

  private final List<Target> targets;
  private final Policies policies;
  private final String localHost;

  /** Without targets there are no copies, and no attribute is ever read. */
  public Copies(Path root, List<Target> targets, String localHost, int copies, String layout) {
    this.targets = targets;
    this.localHost = localHost;
    this.policies = new Policies(root, copies, layout);
    if (!targets.isEmpty() && copies > targets.size()) {
      throw new IllegalArgumentException(
          "fs.pfs.copies is " + copies + ", and fs.pfs.targets has " + targets.size()
              + " servers: add servers or want fewer copies");
    }
    if (targets.isEmpty() && copies > 1) {
      throw new IllegalArgumentException(
          "fs.pfs.copies is " + copies + ": name directories for them in fs.pfs.targets");
    }
  }

  /** Whether files may have copies at all. */
  public boolean enabled() {
    return !targets.isEmpty();
  }

  List<Target> targets() {
    return targets;
  }

  Policies.Policy policy(Path directory) throws IOException {
    return policies.of(directory);
  }

  boolean isTarget(Path directory) {
    return targetAt(directory).isPresent();
  }

  private Optional<Target> targetAt(Path directory) {
    return targets.stream().filter(target -> target.directory().equals(directory)).findFirst();
  }

  String localHost() {
    return localHost;
  }

  /**
   * Gives a file that was just created its place and its copies. The first of the sinks that come
   * back has taken the place of {@code created}.
   */
  public List<Sink> begin(Sink created) throws IOException {
    if (!enabled()) {
      return List.of(created);
    }
    Policies.Policy policy;
    try {
      policy = policies.of(created.file().getParent());
    } catch (IOException e) {
      undo(created, List.of());
      throw e;
    }
    if (policy.copies() == 1) {
      return List.of(created);
    }
    UUID uuid = UUID.randomUUID();
    List<Sink> sinks = new ArrayList<>();
    try {
      List<Target> chosen = choose(policy);
      sinks.add(placeFirst(created, chosen.get(0), uuid));
      Stat first = Stat.of(created.file());
      List<String> names = new ArrayList<>();
      chosen.subList(1, chosen.size()).forEach(target -> names.add(target.name()));
      CopyRecord record =
          new CopyRecord(uuid, first.inode(), chosen.get(0).name(), names, 0, first.modifiedMs());
      Attribute.write(created.file(), CopyRecord.FILE, record.toString());
      for (Target target : chosen.subList(1, chosen.size())) {
        addCopy(sinks, target, uuid, first.mode());
      }
      return sinks;
    } catch (IOException | RuntimeException e) {
      undo(created, sinks);
      throw e;
    }
  }

  /** Leaves neither an empty file nor copies of none behind. */
  private static void undo(Sink created, List<Sink> sinks) throws IOException {
    created.close();
    Files.deleteIfExists(created.file());
    for (Sink sink : sinks) {
      sink.close();
      Files.deleteIfExists(sink.file());
    }
  }

  private List<Target> choose(Policies.Policy policy) throws IOException {
    try {
      return policy.layout().choose(targets, policy.copies(), localHost);
    } catch (IllegalArgumentException e) {
      throw new IOException(e.getMessage(), e);
    }
  }

  /**
   * The file system chooses servers by the directory in which a file is created. So the file is
   * created in the target, and takes the name of the empty one that holds its place.
   */
  private Sink placeFirst(Sink created, Target target, UUID uuid) throws IOException {
    Stat placeholder = Stat.of(created.file());
    Path placed = target.directory().resolve(uuid + ".first");
    Sink sink = createIn(target, placed, placeholder.mode());
    try {
      Files.move(placed, created.file(), StandardCopyOption.ATOMIC_MOVE);
    } catch (IOException e) {
      sink.close();
      Files.deleteIfExists(placed);
      throw new IOException(
          "cannot move a file from the target " + target.name() + " to its place: the targets"
              + " must be on the same file system as the root",
          e);
    } finally {
      created.close();
    }
    return new Sink(sink.channel(), created.file());
  }

  static Sink createIn(Target target, Path file, int mode) throws IOException {
    try {
      FileChannel channel =
          FileChannel.open(
              file,
              Set.of(StandardOpenOption.CREATE_NEW, StandardOpenOption.WRITE),
              PosixFilePermissions.asFileAttribute(PosixFilePermissions.fromString("rw-------")));
      try {
        Files.setAttribute(file, "unix:mode", mode & 07777);
      } catch (IOException e) {
        channel.close();
        Files.deleteIfExists(file);
        throw e;
      }
      return new Sink(channel, file);
    } catch (java.nio.file.NoSuchFileException e) {
      throw new IOException(
          "the directory " + target.directory() + " of fs.pfs.targets does not exist: create it"
              + " with mode 1733 and let the file system keep it on " + target.host(),
          e);
    }
  }

  private static void addCopy(List<Sink> sinks, Target target, UUID uuid, int mode) {
    Path file = target.directory().resolve(uuid.toString());
    try {
      sinks.add(createIn(target, file, mode));
    } catch (IOException e) {
      LOG.warn("a copy on {} cannot be created; it is left to heal", target.host(), e);
    }
  }

  /**
   * Seals a file with the copies that are complete; they are closed. Every byte is in the file by
   * then, so a seal that fails is no error of the writer.
   */
  public void seal(List<Sink> complete) {
    Path file = complete.get(0).file();
    try {
      sealWith(file, complete);
    } catch (IOException e) {
      LOG.warn("{} has its copies but no seal; it is left to heal", file, e);
    }
  }

  private void sealWith(Path file, List<Sink> complete) throws IOException {
    CopyRecord record = read(file, CopyRecord.FILE);
    if (record == null) {
      return;
    }
    List<String> names = new ArrayList<>();
    for (Sink sink : complete.subList(1, complete.size())) {
      if (!sink.file().endsWith(record.uuid().toString())) {
        // Another writer's file has the name by now, and its copies are not these.
        return;
      }
      targetAt(sink.file().getParent()).ifPresent(target -> names.add(target.name()));
    }
    seal(file, record, names);
  }

  void seal(Path file, CopyRecord record, List<String> names) throws IOException {
    Stat now = Stat.of(file);
    Attribute.write(
        file,
        CopyRecord.SEAL,
        record.sealed(names, now.length(), now.modifiedMs()).toString());
  }

  /** The record of this very file, or null; attributes copied from another file are none. */
  CopyRecord read(Path file, String attribute) throws IOException {
    CopyRecord record = parse(file, attribute);
    return record != null && record.inode() == Stat.of(file).inode() ? record : null;
  }

  private static CopyRecord parse(Path file, String attribute) throws IOException {
    String text = Attribute.read(file, attribute);
    return text == null ? null : CopyRecord.parse(text);
  }

  /** The seal if the file is as it was then, by its time; else null. */
  CopyRecord validSeal(Path file) throws IOException {
    CopyRecord seal = parse(file, CopyRecord.SEAL);
    if (seal == null) {
      return null;
    }
    Stat now = Stat.of(file);
    return seal.inode() == now.inode() && seal.modifiedMs() == now.modifiedMs() ? seal : null;
  }

  /** Whether the file of that name has a valid seal of the same copies and length. */
  boolean isStillSealed(Path file, CopyRecord seal) throws IOException {
    CopyRecord now = validSeal(file);
    return now != null && now.uuid().equals(seal.uuid()) && now.length() == seal.length();
  }

  /** Where a record's copies are; targets that the configuration has no more are left out. */
  List<Target> targetsOf(CopyRecord record) {
    List<Target> found = new ArrayList<>();
    for (String name : record.copies()) {
      Target.of(targets, name).ifPresent(found::add);
    }
    return found;
  }

  Path copy(Target target, CopyRecord record) {
    return target.directory().resolve(record.uuid().toString());
  }

  Optional<Target> firstTarget(CopyRecord record) {
    return Target.of(targets, record.first());
  }

  /**
   * Where a file has complete copies.
   *
   * @param hosts servers that have the whole file
   * @param inRacks copies whose servers are those that the layout tells
   */
  public record Places(List<String> hosts, List<Path> inRacks) {}

  /** The servers of the file and of its complete copies; none for a file without a seal. */
  public Places places(Path file) throws IOException {
    Places places = new Places(new ArrayList<>(), new ArrayList<>());
    CopyRecord seal = enabled() ? validSeal(file) : null;
    if (seal == null) {
      return places;
    }
    firstTarget(seal)
        .filter(target -> !target.isRack())
        .ifPresent(target -> places.hosts().add(target.host()));
    for (Target target : targetsOf(seal)) {
      if (target.isRack()) {
        places.inRacks().add(copy(target, seal));
      } else {
        places.hosts().add(target.host());
      }
    }
    return places;
  }

  /** Opens the complete copies to append, and takes the seal away; the first is open already. */
  public List<Sink> reopen(Sink first) throws IOException {
    if (!enabled()) {
      return List.of(first);
    }
    List<Sink> sinks = new ArrayList<>(List.of(first));
    CopyRecord seal;
    try {
      seal = validSeal(first.file());
      Attribute.remove(first.file(), CopyRecord.SEAL);
      if (seal == null || seal.length() != first.start()) {
        return sinks;
      }
    } catch (IOException e) {
      first.close();
      throw e;
    }
    for (Target target : targetsOf(seal)) {
      Path file = copy(target, seal);
      try {
        FileChannel channel = FileChannel.open(file, StandardOpenOption.APPEND);
        if (channel.size() == seal.length()) {
          sinks.add(new Sink(channel, file, seal.length()));
        } else {
          channel.close();
        }
      } catch (IOException e) {
        LOG.warn("{}: the copy on {} is left to heal", first.file(), target.host(), e);
      }
    }
    return sinks;
  }

  /** What to do once the file is deleted or replaced: its copies go too. */
  public Runnable goingWith(Path file) throws IOException {
    Stat stat = enabled() ? Stat.find(file) : null;
    // With a second name the file lives on.
    if (stat == null || !stat.file() || stat.links() != 1) {
      return () -> {};
    }
    CopyRecord record = read(file, CopyRecord.FILE);
    if (record == null) {
      return () -> {};
    }
    return () -> targetsOf(record).forEach(target -> deleteCopy(copy(target, record), stat.uid()));
  }

  /** The owner is compared since a user may have written another's uuid into an attribute. */
  private static void deleteCopy(Path copy, int uid) {
    try {
      Stat stat = Stat.find(copy);
      if (stat != null && stat.uid() == uid) {
        Files.deleteIfExists(copy);
      }
    } catch (IOException e) {
      LOG.warn("the copy {} of a deleted file stays until fsck of the root finds it", copy, e);
    }
  }

  /** A change of a file that its copies shall follow, such as of its mode. */
  @FunctionalInterface
  public interface Change {
    void on(Path file) throws IOException;
  }

  /** Changes the file and its copies; the seal then holds for the changed file. */
  public void change(Path file, Change change) throws IOException {
    Stat stat = enabled() ? Stat.find(file) : null;
    if (stat == null || !stat.file()) {
      change.on(file);
      return;
    }
    CopyRecord record = read(file, CopyRecord.FILE);
    CopyRecord seal = record == null ? null : validSeal(file);
    if (seal == null) {
      change.on(file);
      return;
    }
    Attribute.remove(file, CopyRecord.SEAL);
    try {
      change.on(file);
    } catch (IOException e) {
      sealAsBefore(file, stat, seal);
      throw e;
    }
    List<String> changed = new ArrayList<>();
    for (Target target : targetsOf(seal)) {
      try {
        change.on(copy(target, seal));
        changed.add(target.name());
      } catch (IOException e) {
        LOG.warn("{}: the copy on {} is left to heal", file, target.host(), e);
      }
    }
    seal(file, record, changed);
  }

  /** After a change that was refused, as of the owner by one who may not: the copies still hold. */
  private static void sealAsBefore(Path file, Stat before, CopyRecord seal) {
    try {
      if (Stat.of(file).equals(before)) {
        Attribute.write(file, CopyRecord.SEAL, seal.toString());
      }
    } catch (IOException e) {
      LOG.warn("{} was not changed and has no seal; it is left to heal", file, e);
    }
  }
}
