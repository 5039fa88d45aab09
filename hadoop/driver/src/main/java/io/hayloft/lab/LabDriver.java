package io.hayloft.lab;

import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import org.apache.hadoop.metrics2.lib.DefaultMetricsSystem;
import org.apache.hadoop.util.ExitUtil;

/**
 * Stock Hadoop clients on request: one JSON object a line on stdin ({@code id}, {@code op} and
 * arguments), one a line on stdout ({@code id}, results, {@code millis}; or {@code error} with
 * {@code class} and {@code message}). Requests run concurrently. Ends, without closing what is
 * open, at the end of stdin.
 */
public final class LabDriver {
  /** One operation: reads arguments, fills in results. */
  public interface Operation {
    void run(ObjectNode request, ObjectNode answer) throws Exception;
  }

  private final ObjectMapper json = new ObjectMapper();
  private final TreeMap<String, Operation> operations = new TreeMap<>();
  private final PrintStream answers;

  private LabDriver(PrintStream answers) {
    this.answers = answers;
    operations.put("ping", (request, answer) -> answer.put("ok", true));
    new Tools().register(operations);
    new Files().register(operations);
    new Writers().register(operations);
    new Throughput().register(operations);
    new Caching().register(operations);
  }

  /** Runs until stdin ends. */
  public static void main(String[] args) throws IOException {
    serve(Map.of());
  }

  /** Runs until stdin ends, with these operations, too. */
  public static void serve(Map<String, Operation> more) throws IOException {
    PrintStream answers = new PrintStream(System.out, true, StandardCharsets.UTF_8);
    // Tools print wherever they like; the channel to the lab stays clean.
    System.setOut(System.err);
    ExitUtil.disableSystemExit();
    ExitUtil.disableSystemHalt();
    // Tools that are meant to run once per JVM may run again.
    DefaultMetricsSystem.setMiniClusterMode(true);
    LabDriver driver = new LabDriver(answers);
    driver.operations.putAll(more);
    ExecutorService pool = Executors.newCachedThreadPool(task -> {
      Thread thread = new Thread(task);
      thread.setDaemon(true);
      return thread;
    });
    BufferedReader requests =
        new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    for (String line = requests.readLine(); line != null; line = requests.readLine()) {
      String request = line;
      pool.execute(() -> driver.answer(request));
    }
    // No shutdown hooks: they would close open files, and the lab means this client to be dead.
    Runtime.getRuntime().halt(0);
  }

  private void answer(String line) {
    ObjectNode answer = json.createObjectNode();
    long start = System.nanoTime();
    try {
      ObjectNode request = (ObjectNode) json.readTree(line);
      answer.set("id", request.get("id"));
      String name = request.path("op").asText();
      Operation operation = operations.get(name);
      if (operation == null) {
        throw new IllegalArgumentException("no operation " + name + "; there are " + operations.keySet());
      }
      operation.run(request, answer);
    } catch (Throwable problem) {
      ObjectNode error = answer.putObject("error");
      error.put("class", problem.getClass().getName());
      error.put("message", String.valueOf(problem.getMessage()));
      problem.printStackTrace(System.err);
    }
    answer.put("millis", (System.nanoTime() - start) / 1_000_000);
    synchronized (answers) {
      answers.println(answer);
    }
  }
}
