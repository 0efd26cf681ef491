package revstore.junit;

import java.io.IOException;
import java.io.OutputStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.function.Consumer;

/** The files of a test that has failed. */
final class Artifacts {
    private Artifacts() {}

    /** Writes them to a new directory in that of REVSTORE_ARTIFACTS, or in that for temporary files. */
    static Path save(String test, String output, Control control) throws IOException {
        String variable = System.getenv("REVSTORE_ARTIFACTS");
        String given = System.getProperty("revstore.artifacts", variable);
        Path base = given == null ? Path.of(System.getProperty("java.io.tmpdir"), "revstore-artifacts") : Path.of(given);
        Files.createDirectories(base);
        String name = test.replaceAll("[^\\w.-]", "_");
        Path directory = Files.createTempDirectory(base, name.substring(0, Math.min(100, name.length())) + "-");
        Files.writeString(directory.resolve("server.log"), output);
        if (control != null) {
            write(directory, "journal.jsonl", control::writeJournal);
            write(directory, "dump.txt", control::dump);
        }
        return directory;
    }

    /** Writes a file, or the reason why that is not possible, which must not hide the failure of the test. */
    private static void write(Path directory, String name, Consumer<OutputStream> content) throws IOException {
        try (var file = Files.newOutputStream(directory.resolve(name))) {
            content.accept(file);
        } catch (RuntimeException error) {
            Files.writeString(directory.resolve(name + ".error"), error + "\n");
        }
    }
}
