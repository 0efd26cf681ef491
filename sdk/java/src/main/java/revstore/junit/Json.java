package revstore.junit;

import com.google.gson.FieldNamingPolicy;
import com.google.gson.Gson;
import com.google.gson.GsonBuilder;
import com.google.gson.JsonDeserializer;
import java.time.Duration;
import java.util.Base64;

/** The JSON of control: names with underscores, keys in base64, durations as texts. */
final class Json {
    static final Gson GSON = new GsonBuilder()
            .setFieldNamingPolicy(FieldNamingPolicy.LOWER_CASE_WITH_UNDERSCORES)
            .registerTypeAdapter(
                    Duration.class, (JsonDeserializer<Duration>) (json, type, context) -> Durations.fromText(json.getAsString()))
            .registerTypeAdapter(
                    byte[].class, (JsonDeserializer<byte[]>) (json, type, context) -> Base64.getDecoder().decode(json.getAsString()))
            .create();

    private Json() {}
}
