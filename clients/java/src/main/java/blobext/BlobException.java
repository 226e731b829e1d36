package blobext;

import java.io.IOException;
import java.sql.SQLException;

/** An error of a value, of the server or of the connection. */
public final class BlobException extends IOException {
    private static final long serialVersionUID = 1;

    /** What has happened. */
    public enum Kind {
        /** There is no such row, or its value is NULL. */
        MISSING,
        /** Another session has replaced or removed the value since it was opened. */
        CHANGED,
        /** Bytes that were stored or read have another digest than they should have. */
        MISMATCH,
        /** The extension is missing or too old, or the server's answer is none of blobext's. */
        UNEXPECTED,
        /** An error of the server, with its SQLSTATE and its SQLException as cause. */
        SERVER,
        /** The same, and the connection is lost. */
        LOST
    }

    private final Kind kind;

    BlobException(Kind kind, String message) {
        super(message);
        this.kind = kind;
    }

    BlobException(SQLException cause) {
        super(cause.getMessage(), cause);
        String state = String.valueOf(cause.getSQLState());
        kind = state.startsWith("08") || state.matches("57P0[123]") ? Kind.LOST : Kind.SERVER;
    }

    public Kind getKind() {
        return kind;
    }

    /** SQLSTATE of an error of the server or of the connection, else null. */
    public String getSQLState() {
        return getCause() instanceof SQLException cause ? cause.getSQLState() : null;
    }
}
