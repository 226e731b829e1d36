package blobext;

import java.sql.Connection;
import java.sql.SQLException;
import java.sql.Savepoint;

/** A transaction, or a savepoint within one of the caller's: rolled back unless committed. */
final class Transaction implements AutoCloseable {
    private final Connection connection;
    private final Savepoint savepoint;
    private boolean isOpen = true;

    Transaction(Connection connection) throws SQLException {
        this.connection = connection;
        boolean isOutermost = connection.getAutoCommit();
        if (isOutermost)
            connection.setAutoCommit(false);
        savepoint = isOutermost ? null : connection.setSavepoint();
    }

    void commit() throws SQLException {
        if (savepoint != null)
            connection.releaseSavepoint(savepoint);
        else
            connection.commit();
        end();
    }

    private void end() throws SQLException {
        isOpen = false;
        if (savepoint == null)
            connection.setAutoCommit(true);
    }

    @Override
    public void close() {
        if (!isOpen)
            return;
        try {
            if (savepoint != null)
                connection.rollback(savepoint);
            else
                connection.rollback();
            end();
        } catch (SQLException lost) {
            isOpen = false;    // The server rolls back.
        }
    }
}
