package io.hayloft.placement;

import com.fasterxml.jackson.databind.ObjectMapper;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;

/**
 * Placement at scale, in virtual time: {@code scripts/placement-at-scale}. It prints a table on
 * stdout as Markdown, and one JSON object a run on stderr.
 */
public final class AtScale {
  private static final ObjectMapper JSON = new ObjectMapper();
  private static final List<String> POLICIES =
      List.of(ScaleCase.STOCK, ScaleCase.FAULT_TOLERANT, "split");

  private AtScale() {}

  /** Runs every policy on every size: {@code --nodes 50,200 --replicas 3 --hours 48 --seed 1}. */
  public static void main(String[] args) throws Exception {
    Map<String, String> options =
        new TreeMap<>(Map.of("--nodes", "50,200,1000,4000", "--replicas", "3"));
    options.putAll(Map.of("--hours", "48", "--seed", "1", "--racks", "0"));
    for (int i = 0; i < args.length; i += 2) {
      if (!options.containsKey(args[i]) || i + 1 == args.length) {
        System.err.println("placement-at-scale: " + args[i] + " is not one of " + options.keySet());
        System.exit(2);
      }
      options.put(args[i], args[i + 1]);
    }
    int replicas = number(options, "--replicas", 1, 10);
    int racks = number(options, "--racks", 0, 1000);
    int hours = number(options, "--hours", 1, 1000);
    int seed = number(options, "--seed", 0, Integer.MAX_VALUE);
    List<Integer> sizes = new ArrayList<>();
    for (String size : options.get("--nodes").split(",")) {
      options.put("--nodes", size);
      sizes.add(number(options, "--nodes", 2 * ScaleCase.NODES_A_HOST, 20_000));
    }
    // The compiler has seen all policies before one is measured.
    for (String policy : POLICIES) {
      new ScaledCluster(new ScaleCase(policy, false, 200, racks, replicas, 8, seed)).run();
    }
    System.out.println(
        "| nodes | writers | policy | collisions | streams | most / median | shared host: written |"
            + " at the end | unreadable | copied | choice, us: p50 | p99 | copy, us: p50 |\n"
            + "|---|---|---|---|---|---|---|---|---|---|---|---|---|");
    for (int nodes : sizes) {
      for (boolean local : new boolean[] {false, true}) {
        for (String policy : POLICIES) {
          ScaleCase of = new ScaleCase(policy, local, nodes, racks, replicas, hours, seed);
          ScaleTally tally = new ScaledCluster(of).run();
          System.out.println(row(of, tally));
          Map<String, Object> raw = new LinkedHashMap<>();
          raw.put("policy", policy);
          raw.put("writers", local ? "local" : "apart");
          raw.put("nodes", nodes);
          raw.put("racks", of.racks());
          raw.put("replicas", replicas);
          raw.put("hours", hours);
          raw.put("seed", seed);
          raw.putAll(tally.figures());
          System.err.println(JSON.writeValueAsString(raw));
        }
      }
    }
  }

  private static int number(Map<String, String> options, String name, int least, int most) {
    try {
      int number = Integer.parseInt(options.get(name));
      if (least <= number && number <= most) {
        return number;
      }
    } catch (NumberFormatException e) {
      // Said below.
    }
    System.err.printf("placement-at-scale: %s must be %d to %d%n", name, least, most);
    System.exit(2);
    return 0;
  }

  private static String row(ScaleCase of, ScaleTally tally) {
    return String.format(
        "| %d | %s | %s | %.1f %% | %.2f | %d / %d | %d | %d | %d | %d |"
            + " %.1f | %.1f | %.1f |",
        of.nodes(),
        of.local() ? "local" : "apart",
        of.policy(),
        100.0 * tally.collisions / Math.max(1, tally.blocks),
        (double) tally.busiest / Math.max(1, tally.blocks),
        tally.most,
        tally.median,
        tally.sharedWritten,
        tally.sharedAtEnd,
        tally.unreadable,
        tally.copied,
        tally.chosen.quantile(0.5),
        tally.chosen.quantile(0.99),
        tally.again.quantile(0.5));
  }
}
