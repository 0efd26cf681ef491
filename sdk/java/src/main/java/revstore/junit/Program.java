package revstore.junit;

import java.io.File;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;

/** One of the servers, by the name of its file and the variable with its path. */
record Program(String name, String variable) {
    static final Program REVSTORE = new Program("revstore", "REVSTORE_BIN");
    static final Program API_SERVER = new Program("revstore-apiserver", "REVSTORE_APISERVER_BIN");

    /** The programs of the archive that were written to files. */
    private static final Map<String, Path> EXTRACTED = new ConcurrentHashMap<>();

    /** Returns the explicit path, that of the variable, that in the archive, or the first in PATH. */
    Path find(Path explicit, Map<String, String> environment) {
        if (explicit != null) {
            return checked("Options.binary", explicit);
        }
        String given = environment.getOrDefault(variable, "");
        if (!given.isEmpty()) {
            return checked(variable, Path.of(given));
        }
        Path packed = EXTRACTED.computeIfAbsent(name, Program::extract);
        if (packed != null) {
            return packed;
        }
        String places = environment.getOrDefault("PATH", "");
        for (String place : places.split(File.pathSeparator)) {
            Path path = Path.of(place, name);
            if (isProgram(path)) {
                return path;
            }
        }
        throw new StartException(name + " was not found: Options.binary is null, " + variable
                + " is not set, the archive was built without it, and it is not in PATH (" + places.replace(File.pathSeparator, ", ") + ")");
    }

    private static Path checked(String source, Path path) {
        if (!isProgram(path)) {
            throw new StartException(source + ": " + path + " is not an executable file");
        }
        return path;
    }

    private static boolean isProgram(Path path) {
        return Files.isRegularFile(path) && Files.isExecutable(path);
    }

    /** Writes a program of the archive to a file that ends with this process; null if there is none. */
    private static Path extract(String name) {
        try (var program = Program.class.getResourceAsStream("bin/" + name)) {
            if (program == null) {
                return null;
            }
            Path directory = Files.createTempDirectory("revstore-junit-");
            Path path = directory.resolve(name);
            Files.copy(program, path);
            // In this order, because the last one is deleted first.
            directory.toFile().deleteOnExit();
            path.toFile().deleteOnExit();
            if (!path.toFile().setExecutable(true)) {
                throw new IOException(path + " cannot be made executable");
            }
            return path;
        } catch (IOException error) {
            throw new StartException("the archive's " + name + ": " + error.getMessage(), error);
        }
    }
}
