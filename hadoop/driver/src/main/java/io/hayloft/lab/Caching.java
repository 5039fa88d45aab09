package io.hayloft.lab;

import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.stream.IntStream;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RemoteIterator;
import org.apache.hadoop.hdfs.DistributedFileSystem;
import org.apache.hadoop.hdfs.protocol.CacheDirectiveEntry;
import org.apache.hadoop.hdfs.protocol.CacheDirectiveInfo;
import org.apache.hadoop.hdfs.protocol.LocatedBlock;
import org.apache.hadoop.hdfs.protocol.LocatedBlocks;

/** Directives of the centralized cache in numbers for which the command is too slow. */
final class Caching {
  void register(Map<String, LabDriver.Operation> operations) {
    operations.put("addDirectives", this::add);
    operations.put("removeDirectives", this::remove);
    operations.put("replicasOf", this::replicas);
  }

  /** Arguments: pool, replication, paths, count: directive i is for the path i modulo theirs. */
  private void add(ObjectNode request, ObjectNode answer) throws IOException {
    List<Path> paths = new ArrayList<>();
    request.path("paths").forEach(path -> paths.add(new Path(path.asText())));
    String pool = Request.text(request, "pool");
    short replication = (short) Request.number(request, "replication", 1);
    int count = (int) Request.number(request, "count", paths.size());
    try (DistributedFileSystem fs = Request.open(request)) {
      IntStream.range(0, count).parallel().forEach(i -> {
        try {
          fs.addCacheDirective(new CacheDirectiveInfo.Builder().setPool(pool)
              .setReplication(replication).setPath(paths.get(i % paths.size())).build());
        } catch (IOException e) {
          throw new UncheckedIOException(e);
        }
      });
    }
    answer.put("added", count);
  }

  /** Arguments: paths. Results: replicas and cached, how many all blocks have of each. */
  private void replicas(ObjectNode request, ObjectNode answer) throws IOException {
    long replicas = 0;
    long cached = 0;
    try (DistributedFileSystem fs = Request.open(request)) {
      for (var path : request.path("paths")) {
        LocatedBlocks located = fs.getClient().getLocatedBlocks(path.asText(), 0, Long.MAX_VALUE);
        for (LocatedBlock block : located.getLocatedBlocks()) {
          replicas += block.getLocations().length;
          cached += block.getCachedLocations().length;
        }
      }
    }
    answer.put("replicas", replicas);
    answer.put("cached", cached);
  }

  /** Arguments: pool. Results: removed, how many directives it had. */
  private void remove(ObjectNode request, ObjectNode answer) throws IOException {
    CacheDirectiveInfo ofPool =
        new CacheDirectiveInfo.Builder().setPool(Request.text(request, "pool")).build();
    try (DistributedFileSystem fs = Request.open(request)) {
      List<Long> ids = new ArrayList<>();
      RemoteIterator<CacheDirectiveEntry> all = fs.listCacheDirectives(ofPool);
      while (all.hasNext()) {
        ids.add(all.next().getInfo().getId());
      }
      ids.parallelStream().forEach(id -> {
        try {
          fs.removeCacheDirective(id);
        } catch (IOException e) {
          throw new UncheckedIOException(e);
        }
      });
      answer.put("removed", ids.size());
    }
  }
}
