package io.hayloft.lab;

import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.InputStream;
import java.io.PrintStream;
import java.lang.reflect.Constructor;
import java.nio.charset.StandardCharsets;
import java.security.PrivilegedExceptionAction;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Base64;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.security.UserGroupInformation;
import org.apache.hadoop.util.ExitUtil;
import org.apache.hadoop.util.Tool;
import org.apache.hadoop.util.ToolRunner;

/** Stock command line tools, in this JVM, with their output caught. */
final class Tools {
  void register(Map<String, LabDriver.Operation> operations) {
    operations.put("tool", this::tool);
  }

  /**
   * Arguments: class (a {@code Tool}), args, conf, stdin (text) or stdinBase64, user (as whom, else
   * ourselves). Results: code, out, err. One at a time: System.out is one for all.
   */
  private synchronized void tool(ObjectNode request, ObjectNode answer) throws Exception {
    Configuration conf = Request.conf(request);
    List<String> args = new ArrayList<>();
    request.path("args").forEach(arg -> args.add(arg.asText()));
    byte[] input = request.hasNonNull("stdinBase64")
        ? Base64.getDecoder().decode(request.get("stdinBase64").asText())
        : request.path("stdin").asText("").getBytes(StandardCharsets.UTF_8);
    ByteArrayOutputStream out = new ByteArrayOutputStream();
    ByteArrayOutputStream err = new ByteArrayOutputStream();
    InputStream oldIn = System.in;
    PrintStream oldOut = System.out;
    PrintStream oldErr = System.err;
    int code;
    try {
      System.setIn(new ByteArrayInputStream(input));
      System.setOut(new PrintStream(out, true, StandardCharsets.UTF_8));
      System.setErr(new PrintStream(err, true, StandardCharsets.UTF_8));
      PrivilegedExceptionAction<Integer> run = () ->
          ToolRunner.run(conf, instance(Request.text(request, "class"), conf), args.toArray(new String[0]));
      String user = request.path("user").asText("");
      code = user.isEmpty() ? run.run() : UserGroupInformation.createRemoteUser(user).doAs(run);
    } catch (ExitUtil.ExitException exit) {
      code = exit.getExitCode();
    } finally {
      System.setIn(oldIn);
      System.setOut(oldOut);
      System.setErr(oldErr);
    }
    answer.put("code", code);
    if (request.path("binary").asBoolean(false)) {
      answer.put("outBase64", Base64.getEncoder().encodeToString(out.toByteArray()));
    } else {
      answer.put("out", out.toString(StandardCharsets.UTF_8));
    }
    answer.put("err", err.toString(StandardCharsets.UTF_8));
  }

  /** Some hide their tool in a nested class without public constructor: Balancer, LogLevel. */
  private static Tool instance(String name, Configuration conf) throws Exception {
    boolean nested = name.endsWith(".Balancer") || name.endsWith(".Mover");
    Class<?> type = Class.forName(nested ? name + "$Cli" : name);
    try {
      Constructor<?> constructor = type.getDeclaredConstructor();
      constructor.setAccessible(true);
      return (Tool) constructor.newInstance();
    } catch (NoSuchMethodException e) {
      Constructor<?> constructor = type.getDeclaredConstructor(Configuration.class);
      constructor.setAccessible(true);
      return (Tool) constructor.newInstance(conf);
    }
  }
}
